"""Types of events: eight data types of Open Cluster Management, and one of ours."""

import pytest

from knfleet.cloudevents.cloud_event import EventError
from knfleet.cloudevents.event_types import (
    RESOURCES,
    EventType,
    read_data_type,
    read_event_type,
)

THEIRS = (
    "cluster.open-cluster-management.io.v1.managedclusters",
    "certificates.k8s.io.v1.certificatesigningrequests",
    "addon.open-cluster-management.io.v1alpha1.managedclusteraddons",
    "addon.open-cluster-management.io.v1beta1.managedclusteraddons",
    "coordination.k8s.io.v1.leases",
    "events.k8s.io.v1.events",
    "io.open-cluster-management.works.v1alpha1.manifestbundles",
    "authentication.k8s.io.v1.tokenrequests",
)


@pytest.mark.parametrize("name", THEIRS)
def test_data_types_have_the_names_that_agents_use(name: str):
    assert str(read_data_type(name)) == name


def test_there_is_no_further_data_type_but_ours():
    assert {str(each) for each in RESOURCES} == {*THEIRS, "knfleet.dev.v1alpha1.accesstokens"}


def test_a_type_has_part_and_action():
    text = f"{THEIRS[0]}.status.update_request"

    found = read_event_type(text)

    assert (found.part, found.action, str(found)) == ("status", "update_request", text)
    assert found == EventType(read_data_type(THEIRS[0]), "status", "update_request")


@pytest.mark.parametrize(
    "text", ["", ".", "a.b", "secrets", f"{THEIRS[0]}.scale.update_request", "v1.secrets.spec.x"]
)
def test_other_types_are_refused(text: str):
    with pytest.raises(EventError):
        read_event_type(text)
