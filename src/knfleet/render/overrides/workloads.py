"""Overrides of single workloads: placement, resources, environment, probes."""

from knfleet.api.knative.overrides import ContainerEnv, ContainerResources, WorkloadOverride
from knfleet.api.meta import Object
from knfleet.render.drafts import Draft, as_map, canonical, in_order, merge
from knfleet.render.overrides.pod_templates import TEMPLATES, containers, pod_spec, put_env
from knfleet.render.overrides.probes import override_probes
from knfleet.render.overrides.replicas import override_replicas

OVERRIDABLE = frozenset({"Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"})


def override_workload(
    draft: Draft, overrides: list[WorkloadOverride], scaled: frozenset[str]
) -> None:
    """Apply the overrides that speak of the object, in order."""
    for override in overrides:
        override_replicas(draft, override, scaled)
        if is_meant(draft, override.name):
            for change in (override_labels, override_placement, override_network):
                change(draft, override)
            override_containers(draft, override)


def is_meant(draft: Draft, name: str) -> bool:
    """Whether an override of that name speaks of the object.

    A Job is known by its name or generateName in the release, not by the one that it gets.
    """
    if draft.kind not in OVERRIDABLE or (draft.group, draft.kind) not in TEMPLATES:
        return False
    return name in (draft.released, draft.meta.get("generateName"))


def override_labels(draft: Draft, override: WorkloadOverride) -> None:
    """Labels and annotations, on the workload and its pods; selectors stay as they are."""
    template = TEMPLATES[draft.group, draft.kind]
    for part, values in (("labels", override.labels), ("annotations", override.annotations)):
        if values:
            merge(draft.section("metadata", part), values)
            merge(draft.section(*template, "metadata", part), values)


def override_placement(draft: Draft, override: WorkloadOverride) -> None:
    """Where pods may run; what is given replaces what is there as a whole."""
    spec = pod_spec(draft)
    if override.node_selector:
        spec["nodeSelector"] = in_order(override.node_selector)
    if override.topology_spread_constraints:
        spec["topologySpreadConstraints"] = canonical(override.topology_spread_constraints)
    if override.tolerations:
        spec["tolerations"] = canonical(override.tolerations)
    if override.affinity is not None:
        spec["affinity"] = canonical(override.affinity)


def override_network(draft: Draft, override: WorkloadOverride) -> None:
    """The node's network, with the cluster's DNS."""
    if override.host_network is not None:
        pod_spec(draft)["hostNetwork"] = override.host_network
        if override.host_network:
            pod_spec(draft)["dnsPolicy"] = "ClusterFirstWithHostNet"


def override_containers(draft: Draft, override: WorkloadOverride) -> None:
    """Resources, environment and probes of the containers that are named."""
    for container in containers(draft):
        name = container.get("name")
        override_resources(container, override.resources)
        for variables in override.env:
            if variables.container == name:
                override_environment(draft, container, variables)
        override_probes(container, "readinessProbe", override.readiness_probes)
        override_probes(container, "livenessProbe", override.liveness_probes)


def override_environment(draft: Draft, container: Object, variables: ContainerEnv) -> None:
    """Set a container's variables; of several with the same name the last one stays."""
    for variable in variables.env_vars:
        if variable.get("name"):
            put_env(draft, container, canonical(variable))


def override_resources(container: Object, overrides: list[ContainerResources]) -> None:
    """Merge the first limits and requests given for a container into its own."""
    for override in overrides:
        if override.container == container.get("name"):
            resources = container["resources"] = {**as_map(container.get("resources"))}
            for part, values in (("limits", override.limits), ("requests", override.requests)):
                if values:
                    resources[part] = {**as_map(resources.get(part)), **in_order(values)}
            return


def set_resources(
    draft: Draft, resources: list[ContainerResources], overrides: list[WorkloadOverride]
) -> None:
    """The deprecated `spec.resources`: for every Deployment that has no override of its own."""
    if draft.kind != "Deployment" or draft.group != "apps":
        return
    if any(override.name == draft.released and override.resources for override in overrides):
        return
    for container in containers(draft):
        override_resources(container, resources)
