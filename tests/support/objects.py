"""Small manifests, and objects as a server would have them, for tests of `apply`."""

from typing import Any, cast

from knfleet.api.core import (
    BUDGETS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    SECRETS,
    SERVICES,
    VALIDATING_WEBHOOKS,
)
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply import well_known
from knfleet.apply.applyset import ApplySet
from knfleet.apply.desired import DesiredSet, Kinds, prepare
from knfleet.apply.observe.metadata import ObservedObject, observe

HOME = "home"
SET = ApplySet(CONFIG_MAPS, Key(HOME, "parent"))
OTHER = ApplySet(CONFIG_MAPS, Key(HOME, "other"))

THINGS = Resource("example.com", "v1", "Thing", "things")
KINDS: Kinds = {
    (each.api_version, each.kind): each
    for each in (
        BUDGETS,
        CLUSTER_ROLES,
        CONFIG_MAPS,
        CRDS,
        DEPLOYMENTS,
        JOBS,
        NAMESPACES,
        SECRETS,
        SERVICES,
        THINGS,
        VALIDATING_WEBHOOKS,
    )
}


def manifest(resource: Resource, name: str, namespace: str = HOME, **rest: Any) -> Object:
    """A manifest of some kind."""
    meta: Object = {"name": name}
    if resource.namespaced:
        meta["namespace"] = namespace
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **rest}


def config_map(name: str, namespace: str = HOME, **values: str) -> Object:
    """A ConfigMap with some keys."""
    return manifest(CONFIG_MAPS, name, namespace, data=values)


def pod_template(name: str, image: str = "example.com/app:1") -> Object:
    """A template of pods with one container."""
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {
            "containers": [
                {"name": "app", "image": image, "env": [{"name": "LEVEL", "value": "info"}]}
            ]
        },
    }


def deployment(name: str, image: str = "example.com/app:1", replicas: int = 1) -> Object:
    """A Deployment of one small container."""
    return manifest(
        DEPLOYMENTS,
        name,
        spec={
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": pod_template(name, image),
        },
    )


def job(name: str, image: str = "example.com/job:1", **spec: Any) -> Object:
    """A Job that runs once."""
    template: Object = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "job", "image": image}]}
    }
    return manifest(JOBS, name, spec={"template": template, **spec})


def service(name: str, namespace: str = HOME) -> Object:
    """A Service in front of a Deployment of the same name."""
    spec = {"selector": {"app": name}, "ports": [{"port": 443, "name": "https"}]}
    return manifest(SERVICES, name, namespace, spec=spec)


def cluster_role(name: str, **rest: Any) -> Object:
    """A ClusterRole that may read ConfigMaps, unless told otherwise."""
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
    return manifest(CLUSTER_ROLES, name, **(rest or {"rules": rules}))


def crd(kind: str = "Thing", **spec: Any) -> Object:
    """A CRD in example.com that lets everything pass."""
    plural = f"{kind.lower()}s"
    schema: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: Object = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return manifest(
        CRDS,
        f"{plural}.example.com",
        spec={
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version],
            **spec,
        },
    )


def namespace(name: str, **labels: str) -> Object:
    """A Namespace."""
    made = manifest(NAMESPACES, name)
    if labels:
        made["metadata"]["labels"] = labels
    return made


def desired_set(*objects: Object, applyset: ApplySet = SET) -> DesiredSet:
    """Objects ready to be applied."""
    return prepare(objects, KINDS, applyset)


def field_set(value: Any) -> Object:
    """The set of all fields of a value, with lists as one field each."""
    if not isinstance(value, dict):
        return {}
    return {f"f:{name}": field_set(child) for name, child in cast("Object", value).items()}


def own_entry(applied: Object) -> Object:
    """What a server writes down when we apply a manifest whose lists are atomic."""
    fields = field_set({name: part for name, part in applied.items() if name != "metadata"})
    for name in ("f:apiVersion", "f:kind"):
        fields.pop(name)
    meta = applied["metadata"]
    kept = {name: meta[name] for name in ("labels", "annotations") if name in meta}
    fields["f:metadata"] = field_set(kept)
    return {
        "manager": well_known.MANAGER,
        "operation": "Apply",
        "apiVersion": applied["apiVersion"],
        "fieldsV1": fields,
    }


def live(applied: Object, *, version: str = "1", **meta: Any) -> Object:
    """An object as a server has it after we applied a manifest."""
    given = applied["metadata"]
    return {
        **applied,
        "metadata": {
            **given,
            "uid": f"uid-{given['name']}",
            "resourceVersion": version,
            "managedFields": [own_entry(applied)],
            **meta,
        },
    }


def seen(applied: Object, **meta: Any) -> ObservedObject:
    """What is observed of such an object."""
    return observe(live(applied, **meta))
