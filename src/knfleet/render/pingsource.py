"""The ping source adapter, which Eventing's controller changes while it runs."""

from knfleet.api.meta import Object
from knfleet.render.drafts import Draft, as_map
from knfleet.render.pods import containers, environment

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
            names = {variable.get("name") for variable in kept}
            wanted = [v for v in environment(draft, container) if v.get("name") not in names]
            container["env"] = [*kept, *wanted]
