"""The objects of an installation, in the order in which they are applied.

The Deployment, its container and its ServiceAccount have the names of the Knative Operator, and the
same selector, so that what people type and script for that works here, and an upgrade from it is a
rollout like any other.
"""

from typing import Any

from knfleet import __version__
from knfleet.api.crds.generator import definitions
from knfleet.api.meta import Object
from knfleet.api.rbac_rules import RBAC_GROUP
from knfleet.hub.admission.profile_use import PROFILE_USE
from knfleet.install.deployments import network_policy
from knfleet.install.operator_options import OperatorInstall, mount_path
from knfleet.operator import rights
from knfleet.operator.settings import HEALTH_PORT, METRICS_PORT
from knfleet.runtime.leader.lease_rules import LeaseTiming

NAME = "knative-operator"
PROVIDERS = "clusterprofile-provider-file"
PROVIDER_FOLDER, PROVIDER_FILE = "/etc/cluster-inventory", "config.json"
CACHE = "/var/cache/knfleet"
LOCAL, CREDENTIALS = f"{NAME}-local", f"{NAME}-credentials"


def everything(install: OperatorInstall) -> list[Object]:
    """All objects, ready for `kubectl apply`."""
    return [
        namespace(install),
        *definitions(),
        account(install),
        *roles(install),
        *(rules() if install.check_profile_use else []),
        *settings(install),
        *([providers(install)] if install.multicluster else []),
        service(install),
        network(install),
        deployment(install),
    ]


def made(kind: str, name: str, api: str = "v1", *, at: str = "", **fields: Any) -> Object:
    """An object with our labels."""
    meta: Object = {"name": name, "namespace": at} if at else {"name": name}
    meta["labels"] = labels()
    return {"apiVersion": api, "kind": kind, "metadata": meta, **fields}


def labels() -> dict[str, str]:
    """What all objects carry."""
    return {"app.kubernetes.io/name": NAME, "app.kubernetes.io/version": __version__}


def namespace(install: OperatorInstall) -> Object:
    """The operator's own namespace."""
    return made("Namespace", install.namespace)


def account(install: OperatorInstall) -> Object:
    """The operator's own account."""
    return made("ServiceAccount", NAME, at=install.namespace)


def roles(install: OperatorInstall) -> list[Object]:
    """The operator's rights."""
    local = [*cluster_role(LOCAL, rights.local_rules(), install)] if install.local else []
    credentials = [
        each
        for namespace in install.secret_namespaces
        for each in role(CREDENTIALS, rights.secret_rules(), install, at=namespace)
    ]
    return [
        *cluster_role(NAME, rights.hub_rules(), install),
        *local,
        *role(NAME, rights.namespace_rules(), install, at=install.namespace),
        *credentials,
    ]


def rules() -> list[Object]:
    """What the API server itself asks of those who write custom resources."""
    return [
        made(each["kind"], each["metadata"]["name"], each["apiVersion"], spec=each["spec"])
        for each in PROFILE_USE.manifests()
    ]


def cluster_role(name: str, rules: list[Object], install: OperatorInstall) -> tuple[Object, Object]:
    """Rights on the whole cluster, and whose they are."""
    api = f"{RBAC_GROUP}/v1"
    return (
        made("ClusterRole", name, api, rules=rules),
        made("ClusterRoleBinding", name, api, **binding("ClusterRole", name, install)),
    )


def role(
    name: str, rules: list[Object], install: OperatorInstall, *, at: str
) -> tuple[Object, Object]:
    """Rights in one namespace, and whose they are."""
    api = f"{RBAC_GROUP}/v1"
    return (
        made("Role", name, api, at=at, rules=rules),
        made("RoleBinding", name, api, at=at, **binding("Role", name, install)),
    )


def binding(kind: str, name: str, install: OperatorInstall) -> Object:
    """What gives a role to the operator."""
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": install.namespace}
    reference = {"apiGroup": RBAC_GROUP, "kind": kind, "name": name}
    return {"roleRef": reference, "subjects": [subject]}


def settings(install: OperatorInstall) -> list[Object]:
    """The ConfigMaps that are read while the operator runs, with what counts without them."""
    timing = LeaseTiming()
    data: dict[str, dict[str, str]] = {
        "config-logging": {f"loglevel.{NAME}": "info"},
        "config-observability": {"metrics-protocol": "none"},
        "config-leader-election": {
            "lease-duration": f"{timing.lease_seconds:g}s",
            "renew-deadline": f"{timing.renew_seconds:g}s",
            "retry-period": f"{timing.retry_seconds:g}s",
        },
    }
    return [made("ConfigMap", name, at=install.namespace, data=each) for name, each in data.items()]


def providers(install: OperatorInstall) -> Object:
    """The file of access providers."""
    text = install.providers.decode()
    return made("ConfigMap", PROVIDERS, at=install.namespace, data={PROVIDER_FILE: text})


def service(install: OperatorInstall) -> Object:
    """Where metrics are scraped: the health server always has them."""
    port = {"name": "http-metrics", "port": METRICS_PORT, "targetPort": "health"}
    spec: Object = {"selector": {"name": NAME}, "ports": [port]}
    return made("Service", NAME, at=install.namespace, spec=spec)


def network(install: OperatorInstall) -> Object:
    """Who may reach the operator's pods: all clients for health and metrics, none for more."""
    ports = (HEALTH_PORT, METRICS_PORT)
    policy = network_policy(NAME, install.namespace, {"name": NAME}, ports)
    spec = policy["spec"]
    return made(policy["kind"], NAME, policy["apiVersion"], at=install.namespace, spec=spec)


def deployment(install: OperatorInstall) -> Object:
    """The operator itself."""
    pod: Object = {
        "serviceAccountName": NAME,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container(install)],
        "volumes": volumes(install),
    }
    chosen = {"name": NAME}
    meta: Object = {"labels": {**chosen, **labels(), "sidecar.istio.io/inject": "false"}}
    spec: Object = {
        "replicas": 1,
        "selector": {"matchLabels": chosen},
        "template": {"metadata": meta, "spec": pod},
    }
    return made("Deployment", NAME, "apps/v1", at=install.namespace, spec=spec)


def container(install: OperatorInstall) -> Object:
    """The operator's container."""
    return {
        "name": NAME,
        "image": install.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["knfleet", "operator"],
        "args": arguments(install),
        "env": environment(install),
        "ports": [
            {"name": "health", "containerPort": HEALTH_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        "livenessProbe": probe("/healthz", failures=6),
        "readinessProbe": probe("/readyz", failures=3),
        "resources": {
            "requests": {"cpu": "100m", "memory": "100Mi"},
            "limits": {"cpu": "1000m", "memory": "1000Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts(install),
    }


def arguments(install: OperatorInstall) -> list[str]:
    """The flags; what is typed into the Deployment later is added to them."""
    found = [f"--clusterprofile-provider-file={PROVIDER_FOLDER}/{PROVIDER_FILE}"]
    interval = install.poll_interval
    return [
        *(found if install.multicluster else []),
        *([f"--remote-deployments-poll-interval={interval}"] if interval else []),
    ]


def environment(install: OperatorInstall) -> list[Object]:
    """The variables, those of the Knative Operator first."""
    fields = {"POD_NAME": "metadata.name", "SYSTEM_NAMESPACE": "metadata.namespace"}
    values = {
        "CONFIG_LOGGING_NAME": "config-logging",
        "CONFIG_OBSERVABILITY_NAME": "config-observability",
        "CONFIG_LEADERELECTION_NAME": "config-leader-election",
        "KUBERNETES_MIN_VERSION": install.minimum_kubernetes,
        "XDG_CACHE_HOME": CACHE,
        "TMPDIR": CACHE,
    }
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
          for name, path in fields.items()),
        *({"name": name, "value": value} for name, value in values.items() if value),
    ]  # fmt: skip


def probe(path: str, *, failures: int) -> Object:
    """A question to the health server."""
    return {
        "httpGet": {"path": path, "port": "health"},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def mounts(install: OperatorInstall) -> list[Object]:
    """What the container sees beside its image."""
    return [
        {"name": "knfleet-cache", "mountPath": CACHE},
        {"name": "access-config", "mountPath": PROVIDER_FOLDER, "readOnly": True},
        *(
            {"name": each.name, "mountPath": mount_path(number, each), "readOnly": True}
            for number, each in enumerate(install.plugins)
        ),
    ]


def volumes(install: OperatorInstall) -> list[Object]:
    """The volumes; the provider file is optional, so that it can be made later, by hand."""
    return [
        {"name": "knfleet-cache", "emptyDir": {}},
        {"name": "access-config", "configMap": {"name": PROVIDERS, "optional": True}},
        *({"name": each.name, "image": {"reference": each.image}} for each in install.plugins),
    ]
