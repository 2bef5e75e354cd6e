"""What a red run writes down of an object."""

from knfleet.api.meta import Object
from tests.chaos.scene import described


def test_a_line_says_what_decides_whether_an_object_can_go() -> None:
    """Owners, deletion and finalizers; what is not there is not spoken of."""
    owner: Object = {"kind": "ReplicaSet", "name": "r", "uid": "u1"}
    meta: Object = {
        "namespace": "n",
        "name": "p",
        "uid": "u2",
        "deletionTimestamp": "2026-01-02T03:04:05Z",
        "finalizers": ["a", "b"],
        "ownerReferences": [owner],
    }
    pod: Object = {"metadata": meta, "spec": {"nodeName": "node"}, "status": {"phase": "Running"}}

    assert described("Pod", pod) == (
        "Pod n/p uid=u2 deleted=2026-01-02T03:04:05Z finalizers=a,b owners=ReplicaSet/r/u1"
        " node=node phase=Running"
    )
    assert described("Pod", {"metadata": {"namespace": "n", "name": "p", "uid": "u"}}) == (
        "Pod n/p uid=u"
    )
