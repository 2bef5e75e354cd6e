"""Certificates: those that Serving's controller trusts, and those that Eventing may ask for."""

from knfleet.api.knative.resources import CustomCerts, EventingSpec
from knfleet.api.meta import Object
from knfleet.render.drafts import Draft
from knfleet.render.errors import BadField
from knfleet.render.overrides.pod_templates import containers, pod_spec, put_env

FIELD = "spec.controller-custom-certs"
FOLDER = "/custom-certs"
TLS_GROUPS = frozenset({"cert-manager.io", "trust.cert-manager.io"})
SOURCES = {"ConfigMap": ("configMap", "name"), "Secret": ("secret", "secretName")}


def check_certs(certs: CustomCerts) -> None:
    """Refuse a source that is not one."""
    if certs.type not in SOURCES:
        raise BadField(f"{FIELD}.type", certs.type, f"unknown CustomCerts type: {certs.type}")
    if not certs.name:
        problem = f"the CustomCerts name for {certs.type} is required"
        raise BadField(f"{FIELD}.name", certs.name, problem)


def trust(draft: Draft, certs: CustomCerts) -> None:
    """Mount the certificates into Serving's controller, and tell it where they are."""
    if not draft.named("apps", "Deployment", "controller"):
        return
    source, field = SOURCES[certs.type]
    volume = {"name": f"custom-certs-{certs.name}", source: {field: certs.name}}
    pod = pod_spec(draft)
    pod["volumes"] = replaced(draft.maps(pod.get("volumes"), ("volumes",)), volume, "name")
    for container in list(containers(draft))[:1]:
        mounts = draft.maps(container.get("volumeMounts"), ("volumeMounts",))
        mount = {"name": volume["name"], "mountPath": FOLDER}
        container["volumeMounts"] = replaced(mounts, mount, "mountPath")
        put_env(draft, container, {"name": "SSL_CERT_DIR", "value": FOLDER})


def replaced(entries: list[Object], new: Object, key: str) -> list[Object]:
    """The list with one entry at its end, and none other with the same key."""
    return [*(entry for entry in entries if entry.get(key) != new[key]), new]


def encrypts(spec: EventingSpec) -> bool:
    """Whether Eventing's transport is encrypted, so that it needs cert-manager."""
    mode = spec.config_map("config-features").get("transport-encryption", "")
    return mode.lower() in ("permissive", "strict")


def is_tls(draft: Draft) -> bool:
    """Whether the object can only exist where cert-manager is."""
    return draft.group in TLS_GROUPS
