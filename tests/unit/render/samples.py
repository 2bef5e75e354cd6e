"""Small objects of a release, and a way to render them."""

from collections.abc import Sequence
from typing import Any

from knfleet.api.knative.resources import Knative, KnativeEventing, KnativeServing
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.render.ownership import Owner
from knfleet.render.pipeline import Rendered, RenderFacts, render

DIGEST = "@sha256:" + "a" * 64
FACTS = RenderFacts(version="1.23.0")
OWNER = Owner("operator.knative.dev/v1beta1", "KnativeServing", "knative", "uid-1")


def thing(api_version: str, kind: str, name: str, **fields: Any) -> Object:
    """An object in the release's namespace."""
    meta = {"name": name, "namespace": "knative-serving"}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **fields}


def container(name: str, image: str = f"gcr.io/knative/cmd/x{DIGEST}", **fields: Any) -> Object:
    return {"name": name, "image": image, **fields}


def workload(name: str, *containers: Object, kind: str = "Deployment", **pod: Any) -> Object:
    """A workload with the containers, or one that is called like it."""
    spec: Object = {"containers": list(containers) or [container(name)], **pod}
    labels = {"app": name}
    template = {"metadata": {"labels": dict(labels)}, "spec": spec}
    selector = {"matchLabels": dict(labels)}
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    return thing(api_version, kind, name, spec={"selector": selector, "template": template})


def job(generate_name: str, *containers: Object) -> Object:
    made = workload(generate_name, *containers, kind="Job")
    made["metadata"] = {"generateName": generate_name, "namespace": "knative-serving"}
    return made


def config_map(name: str, **data: str) -> Object:
    return thing("v1", "ConfigMap", name, data=data)


def autoscaler(name: str, minimum: int, maximum: int, *, target: str = "") -> Object:
    spec: Object = {"minReplicas": minimum, "maxReplicas": maximum}
    spec["scaleTargetRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target or name}
    return thing("autoscaling/v2", "HorizontalPodAutoscaler", name, spec=spec)


def serving(spec: Object | None = None, namespace: str = "knative-serving") -> KnativeServing:
    meta = {"name": "knative", "namespace": namespace}
    return decode({"metadata": meta, "spec": spec or {}}, KnativeServing)


def eventing(spec: Object | None = None, namespace: str = "knative-eventing") -> KnativeEventing:
    meta = {"name": "knative", "namespace": namespace}
    return decode({"metadata": meta, "spec": spec or {}}, KnativeEventing)


def rendered(objects: Sequence[Object], cr: Knative, **facts: Any) -> Rendered:
    return render(objects, cr, RenderFacts(version="1.23.0", **facts))


def one(manifest: Object, spec: Object | None = None, **facts: Any) -> Object:
    """One object, rendered for a KnativeServing in the release's own namespace."""
    [result] = rendered([manifest], serving(spec), **facts).objects
    return result


def pod(manifest: Object) -> Object:
    return manifest["spec"]["template"]["spec"]


def images(manifest: Object) -> list[str]:
    return [found["image"] for found in pod(manifest)["containers"]]


def env(manifest: Object, place: int = 0) -> list[Object]:
    return pod(manifest)["containers"][place].get("env", [])
