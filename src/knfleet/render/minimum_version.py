"""The oldest Kubernetes that Knative's own processes accept."""

from knfleet.render.drafts import Draft
from knfleet.render.overrides.pod_templates import all_containers, has_pods, put_env

VARIABLE = "KUBERNETES_MIN_VERSION"


def set_minimum_version(draft: Draft, version: str) -> None:
    """Tell every container the oldest Kubernetes version that it should accept."""
    if has_pods(draft):
        for container in all_containers(draft):
            put_env(draft, container, {"name": VARIABLE, "value": version})
