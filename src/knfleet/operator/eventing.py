"""Knative Eventing: what is special about installing it."""

from knfleet.api.knative.resources import KnativeEventing
from knfleet.operator.kinds import KnativeKind

EVENTING = KnativeKind(KnativeEventing, "Knative Eventing")
