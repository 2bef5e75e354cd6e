"""What is told of a write: fields and never values."""

from knfleet.api.meta import Object
from knfleet.kube.client.write_records import Address, address_of, record_of, written_fields

SECRET: Object = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "s", "namespace": "n", "labels": {"a": "b"}},
    "data": {"password": "aHVudGVyMg=="},
    "stringData": {"token": "hunter2"},
}


class Refused(Exception):
    """An error of a server, which repeats what it was sent."""

    code = 403


def test_a_path_tells_what_a_write_is_about() -> None:
    """Core and named groups, parts of objects, kinds of the cluster."""
    core = address_of("/api/v1/namespaces/n/configmaps/c")
    assert core == Address("", "configmaps", "n", "c", "")
    part = address_of("/apis/apps/v1/namespaces/n/deployments/d/status")
    assert str(part) == "deployments.apps/status"
    assert address_of("/api/v1/namespaces/n") == Address("", "namespaces", "", "n", "")
    assert address_of("/api/v1/namespaces") == Address("", "namespaces", "", "", "")


def test_nothing_of_a_secret_is_told_but_that_it_was_written() -> None:
    """Neither values nor the names of its entries."""
    record = record_of("spoke", "apply", "/api/v1/namespaces/n/secrets/s", SECRET, SECRET)

    assert record is not None
    assert record.fields == ("data", "metadata.labels.a", "stringData")
    assert "hunter2" not in str(record)
    patch = [{"op": "replace", "path": "/data/password", "value": "x"}]
    assert written_fields(patch) == ("data",)


def test_a_failure_is_told_by_its_kind_and_no_message() -> None:
    """A server may repeat in it what it was sent."""
    error = Refused("hunter2 is not allowed")

    record = record_of("hub", "patch", "/api/v1/namespaces/n/secrets/s", SECRET, error)

    assert record is not None
    assert record.error == "Refused 403"
    assert "hunter2" not in str(record)


def test_signs_of_life_and_questions_are_not_told() -> None:
    """They change nothing that anybody asks for later."""
    for path in (
        "/apis/coordination.k8s.io/v1/namespaces/n/leases/l",
        "/api/v1/namespaces/n/events",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    ):
        assert record_of("hub", "create", path, {}, {}) is None


def test_of_many_fields_some_are_named() -> None:
    """And how many more there are."""
    fields = written_fields({"spec": {f"f{number:02}": 1 for number in range(40)}})

    assert (len(fields), fields[-1]) == (33, "… 8 more")
