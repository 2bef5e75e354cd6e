"""The ping source adapter, which Eventing's controller changes while it runs."""

from knfleet.api.meta import Object
from knfleet.render.drafts import Draft, as_map
from knfleet.render.overrides.pod_templates import containers, environment

NAME = "pingsource-mt-adapter"

CONTROLLED = frozenset(
    {
        "K_LEADER_ELECTION_CONFIG",
        "K_LOGGING_CONFIG",
        "K_METRICS_CONFIG",
        "K_NO_SHUTDOWN_AFTER",
        "K_OBSERVABILITY_CONFIG",
        "K_SINK_TIMEOUT",
        "K_TRACING_CONFIG",
        "NAMESPACE",
        "SYSTEM_NAMESPACE",
    }
)
"""Variables that the controller writes."""


def keep_running(draft: Draft, live: Object) -> None:
    """Keep what the controller has written: number of pods, and variables of known containers."""
    if not draft.named("apps", "Deployment", NAME):
        return
    replicas = as_map(live.get("spec")).get("replicas")
    if replicas is not None:
        draft.section("spec")["replicas"] = replicas
    running = Draft(live, draft.group, draft.kind, NAME)
    by_name = {container.get("name"): container for container in containers(running)}
    for container in containers(draft):
        known = by_name.get(container.get("name"))
        if known is not None:
            kept = [v for v in environment(running, known) if v.get("name") in CONTROLLED]
            wanted = environment(draft, container)
            by_release = {variable.get("name"): variable for variable in wanted}
            same = [settled(by_release.get(variable.get("name")), variable) for variable in kept]
            names = {variable.get("name") for variable in kept}
            container["env"] = [*same, *(v for v in wanted if v.get("name") not in names)]


def settled(wanted: Object | None, live: Object) -> Object:
    """What runs, in the words of the release where these mean the same.

    Else the next pass would write what is there already.
    """
    is_same = wanted is not None and live.keys() <= wanted.keys() and is_said_by(live, wanted)
    return wanted if wanted is not None and is_same else live


def is_said_by(live: object, wanted: object) -> bool:
    """Whether a live value is what was wanted, apart from defaults that the server filled in."""
    if isinstance(wanted, dict):
        there = as_map(live)
        return all(is_said_by(there.get(name), value) for name, value in as_map(wanted).items())
    return live == wanted or (live is None and wanted == "")
