"""The parts of workloads that hold pods: templates, containers, environment."""

from collections.abc import Iterator

from knfleet.api.meta import Object
from knfleet.render.drafts import Draft

TEMPLATES: dict[tuple[str, str], tuple[str, ...]] = {
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
    ("apps", "DaemonSet"): ("spec", "template"),
    ("apps", "ReplicaSet"): ("spec", "template"),
    ("batch", "Job"): ("spec", "template"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("", "Pod"): (),
}
"""Where each kind keeps its pod template; a Pod is its own."""


def has_pods(draft: Draft) -> bool:
    """Whether the object is one from which pods come."""
    return (draft.group, draft.kind) in TEMPLATES


def pod_path(draft: Draft) -> tuple[str, ...]:
    """Where the pod's spec is."""
    return (*TEMPLATES[draft.group, draft.kind], "spec")


def pod_spec(draft: Draft) -> Object:
    return draft.section(*pod_path(draft))


def containers(draft: Draft) -> Iterator[Object]:
    """The containers of the object's pods."""
    yield from draft.entries(*pod_path(draft), "containers")


def all_containers(draft: Draft) -> Iterator[Object]:
    """The containers and init containers of the object's pods."""
    yield from containers(draft)
    yield from draft.entries(*pod_path(draft), "initContainers")


def environment(draft: Draft, container: Object) -> list[Object]:
    return draft.maps(container.get("env"), ("env",))


def put_env(draft: Draft, container: Object, variable: Object) -> None:
    """Set a variable: in place where one of that name is, else at the end."""
    variables = environment(draft, container)
    places = [i for i, known in enumerate(variables) if known.get("name") == variable["name"]]
    if places:
        variables[places[0]] = dict(variable)
        for surplus in reversed(places[1:]):
            del variables[surplus]
    else:
        container["env"] = [*variables, dict(variable)]
