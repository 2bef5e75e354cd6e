"""Knative Eventing: what is special about installing it."""

from knfleet.api.knative import KnativeEventing
from knfleet.knative.kinds import Kind

EVENTING = Kind(KnativeEventing, "Knative Eventing")
