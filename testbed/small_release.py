"""A small Knative Serving of our own making: every kind of object that matters, and quick."""

from pathlib import Path

from knfleet.api.meta import Object
from knfleet.kube.yaml import dump_all

RBAC = "rbac.authorization.k8s.io/v1"


def labels(version: str) -> dict[str, str]:
    """What objects of a release carry."""
    return {
        "app.kubernetes.io/name": "knative-serving",
        "app.kubernetes.io/version": version,
        "small.example.com/part": "true",
    }


def make(kind: str, name: str, version: str, api: str = "v1", **fields: object) -> Object:
    """An object of the release."""
    meta: Object = {"name": name, "labels": labels(version)}
    if kind not in ("Namespace", "ClusterRole", "ClusterRoleBinding"):
        meta["namespace"] = "knative-serving"
    return {"apiVersion": api, "kind": kind, "metadata": meta, **fields}


def deployment(name: str, version: str) -> Object:
    """A Deployment whose image changes with the version."""
    chosen = {"app": name}
    container = {"name": name, "image": f"example.com/{name}:{version}"}
    spec: Object = {
        "replicas": 1,
        "selector": {"matchLabels": chosen},
        "template": {"metadata": {"labels": chosen}, "spec": {"containers": [container]}},
    }
    return make("Deployment", name, version, "apps/v1", spec=spec)


def objects(version: str) -> list[Object]:
    """The objects of one version."""
    aggregation = {"clusterRoleSelectors": [{"matchLabels": {"small.example.com/part": "true"}}]}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "small"}
    subject = {"kind": "ServiceAccount", "name": "controller", "namespace": "knative-serving"}
    every = [
        make("Namespace", "knative-serving", version),
        make("ServiceAccount", "controller", version),
        make("ClusterRole", "small", version, RBAC, rules=rules),
        make("ClusterRole", "small-all", version, RBAC, aggregationRule=aggregation),
        make("ClusterRoleBinding", "small", version, RBAC, roleRef=role_ref, subjects=[subject]),
        make("ConfigMap", "config-network", version, data={"version": version}),
        make("ConfigMap", "config-features", version, data={}),
        make("Service", "controller", version, spec={"ports": [{"port": 80}]}),
        deployment("controller", version),
        deployment("activator", version),
    ]
    minor = version.rpartition(".")[0]
    return [
        *every,
        make("ConfigMap", f"only-{minor}", version, data={}),
        make("ClusterRole", f"only-{minor}", version, RBAC, rules=rules),
        deployment(f"only-{minor.replace('.', '-')}", version),
    ]


def write(root: Path) -> Path:
    """The release files of three versions."""
    for version in ("1.21.0", "1.22.0", "1.23.0"):
        folder = root / "knative-serving" / version
        folder.mkdir(parents=True)
        (folder / "1-core.yaml").write_text(dump_all(objects(version)))
    return root
