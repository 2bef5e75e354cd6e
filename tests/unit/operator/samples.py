"""Custom resources for tests of what is decided about them."""

from knfleet.api.meta import Object


def serving(name: str = "one", **meta: object) -> Object:
    """A KnativeServing as an API server sends it."""
    return {
        "apiVersion": "operator.knative.dev/v1beta1",
        "kind": "KnativeServing",
        "metadata": {
            "name": name,
            "namespace": "knative",
            "uid": f"uid-{name}",
            "generation": 1,
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **meta,
        },
        "spec": {},
    }
