"""Addresses that no download may reach, as values: nothing here opens a connection."""

import socket
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.release.source.address_guard import AddressGuard, is_forbidden

METADATA = "169.254.169.254"
LAST_32 = [
    "::",
    "::ffff:",
    "::ffff:0:",
    "64:ff9b::",
    "64:ff9b:1::",
    "fd00::5efe:",
    "fd00::200:5efe:",
]


@pytest.mark.parametrize(
    "address",
    [
        METADATA,
        "169.254.0.1",
        "169.254.170.2",
        "169.254.255.255",
        "fe80::1",
        "fe80::a9fe:a9fe%eth0",
        "febf::1",
        "fec0::1",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "224.0.0.1",
        "ff02::1",
        *(f"{prefix}{METADATA}" for prefix in LAST_32),
        "::ffff:100.100.100.200",
        "64:ff9b::192.0.0.192",
        "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:ffa9:fe:a9fe::",
        "64:ff9b:1:ffff:a9:fea9:fe00::",
        "2002:a9fe:a9fe::1",
        "2001:0:a9fe:a9fe::1",
        "2001:0:4136:e378:8000:63bf:5601:5601",
    ],
)
def test_link_local_and_metadata_addresses_are_closed_however_they_are_written(address: str):
    assert is_forbidden(address)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "10.96.0.1", "192.168.1.1", "100.100.100.201", "192.0.0.193", "192.0.2.1",
     "fd00:1::1", "2001:db8::1", "64:ff9b::10.0.0.1", "::ffff:10.0.0.1", "169.253.1.1"],
)  # fmt: skip
def test_other_addresses_are_open(address: str):
    """File servers of a site are there."""
    assert not is_forbidden(address)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.8.9.1", "0.0.0.0", "0.1.2.3", "::1", "::", "::1%lo", "::ffff:127.0.0.1",
     "::127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::1"],
)  # fmt: skip
def test_addresses_of_the_machine_itself_may_be_closed_too(address: str):
    assert is_forbidden(address, loopback=False)
    assert not is_forbidden("10.96.0.1", loopback=False)


@given(st.ip_addresses(v=4), st.sampled_from(LAST_32[1:5]))
def test_an_ipv4_address_is_the_same_inside_of_an_ipv6_one(address: IPv4Address, prefix: str):
    assert not is_forbidden(str(address)) or is_forbidden(f"{prefix}{address}")


def test_no_socket_is_made_for_a_closed_address():
    """The guard acts before there is anything to connect."""
    guard = AddressGuard()

    with pytest.raises(PermissionError):
        guard.socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", (METADATA, 80)))

    assert guard.refused == METADATA
