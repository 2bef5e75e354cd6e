"""Knative Serving: what is special about installing it."""

from collections.abc import Sequence

from knfleet.api.knative.resources import Knative, KnativeServing
from knfleet.apply.change_set import FailureKind, ObjectFailure
from knfleet.operator.kinds import KnativeKind

ISTIO_GROUPS = frozenset({"networking.istio.io", "security.istio.io"})


def istio_advice(cr: Knative, failures: Sequence[ObjectFailure]) -> str:
    """Istio is assumed when no ingress is named, and often it is not there."""
    missing = any(
        each.why == FailureKind.UNKNOWN_KIND and each.ref.group in ISTIO_GROUPS for each in failures
    )
    if not missing or not isinstance(cr, KnativeServing):
        return ""
    return "please install istio or disable the istio ingress plugin: "


SERVING = KnativeKind(KnativeServing, "Knative Serving", istio_advice)
