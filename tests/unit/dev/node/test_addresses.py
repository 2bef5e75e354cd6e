"""Addresses of pods."""

from itertools import pairwise

from knfleet.api.meta import Object
from knfleet.dev.node.addresses import Addresses, PodAddress, first_for


def pod(uid: str, address: str = "") -> Object:
    """A pod, with the address that its status shows."""
    status = {"podIP": address} if address else {}
    return {"metadata": {"uid": uid}, "status": status}


def test_reported_and_loopback_addresses_end_alike() -> None:
    """So that one can be found from the other by looking."""
    addresses = Addresses(70)

    assert addresses.of(pod("a")) == PodAddress("198.19.1.1", "127.70.1.1")
    assert addresses.of(pod("b")) == PodAddress("198.19.1.2", "127.70.1.2")
    assert addresses.of(pod("a")).reported == "198.19.1.1"


def test_a_pod_keeps_the_address_that_its_status_shows() -> None:
    """A node that starts again must not give it to another pod."""
    addresses = Addresses(70)
    addresses.claim_shown([pod("old", "198.19.1.1"), pod("host", "198.19.255.254")])

    assert addresses.of(pod("new")).reported == "198.19.1.2"
    assert addresses.of(pod("old")).loopback == "127.70.1.1"


def test_every_address_is_used_once_and_again_after_release() -> None:
    """None ends in 0 or 255, and running out is an error, not a repetition."""
    addresses = Addresses(70)
    seen = {addresses.of(pod(str(n))).reported for n in range(3000)}
    for n in range(3000):
        addresses.release(str(n))

    assert len(seen) == 3000
    assert not {each.rpartition(".")[2] for each in seen} & {"0", "255"}
    assert addresses.taken == set()


def test_clusters_of_other_sets_begin_elsewhere() -> None:
    """Their ports differ, so that their pods can listen on one machine at the same time."""
    firsts = [first_for(f"https://127.0.0.1:{port}") for port in range(20000, 21000)]

    assert len(set(firsts)) == 1000
    for one, other in pairwise(firsts):
        assert abs(one - other) >= 61
    assert Addresses(70, firsts[1]).of(pod("a")) != Addresses(70, firsts[0]).of(pod("a"))
