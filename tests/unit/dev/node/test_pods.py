"""When the node takes the removal of a pod into its own hands."""

from datetime import timedelta

from knfleet.api.meta import Object
from knfleet.dev.node.pods.pods import REMOVED_SECONDS, left_to_server
from tests.unit.dev.node.manifests import NOW, NOW_TEXT, pod


def going(**meta: object) -> Object:
    """A pod that is being deleted."""
    made = pod()
    made["metadata"] |= {"deletionTimestamp": NOW_TEXT, "deletionGracePeriodSeconds": 0, **meta}
    return made


def test_a_pod_with_time_left_is_the_nodes_to_remove() -> None:
    """The server waits for the node."""
    assert left_to_server(going(deletionGracePeriodSeconds=30), NOW) == 0.0


def test_a_pod_without_time_left_is_the_servers_at_first() -> None:
    """It removes such a pod at once; one that is still there later was forgotten."""
    later = NOW + timedelta(seconds=REMOVED_SECONDS)

    assert left_to_server(going(), NOW) == REMOVED_SECONDS
    assert left_to_server(going(), later) == 0.0


def test_a_pod_that_finalizers_hold_is_waited_for_by_others() -> None:
    """To ask for its removal again would change nothing."""
    assert left_to_server(going(finalizers=["example.com/clean"]), NOW) is None
