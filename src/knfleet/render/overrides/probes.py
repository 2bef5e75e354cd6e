"""Timing of probes."""

import msgspec

from knfleet.api.knative.overrides import ContainerProbe
from knfleet.api.meta import Object


def override_probes(container: Object, field: str, overrides: list[ContainerProbe]) -> None:
    for override in overrides:
        if override.container == container.get("name"):
            override_probe(container, field, override)


def override_probe(container: Object, field: str, override: ContainerProbe) -> None:
    """Change the fields that are given; with none given the probe goes.

    A container without a probe stays without: an override has no handler, and an API server
    refuses a probe that has none.
    """
    timing = msgspec.to_builtins(override)
    del timing["container"]
    probe = container.get(field)
    if not timing:
        container.pop(field, None)
    elif isinstance(probe, dict):
        container[field] = {**probe, **timing}
