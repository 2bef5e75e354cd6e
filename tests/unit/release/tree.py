"""A small folder of release files, and custom resources that ask for some of them."""

from pathlib import Path
from typing import Any

from knfleet.api.knative.resources import KnativeEventing, KnativeServing
from knfleet.api.schema import decode
from knfleet.kube.yaml import dump_all
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases


def config_map(name: str, *, version: str = "", component: str = "", **data: str) -> dict[str, Any]:
    """A ConfigMap with the labels that releases carry."""
    labels = {"app.kubernetes.io/name": component, "app.kubernetes.io/version": version}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {k: v for k, v in labels.items() if v}},
        "data": data,
    }


def core(name: str) -> dict[str, Any]:
    """The Deployment by which manifests are known to be those of a component."""
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}}


def write(path: Path, *objects: dict[str, Any]) -> Path:
    """Write a manifest file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump_all(objects))
    return path


def release(root: Path, component: str, version: str) -> Path:
    """Write one release of a component, in two files."""
    folder = root / f"knative-{component}" / version
    stamp = {"component": f"knative-{component}"} | (
        {} if version == "latest" else {"version": version}
    )
    write(folder / "1-crds.yaml", config_map(f"{component}-crds", **stamp))
    write(folder / "2-core.yaml", config_map(f"{component}-core", **stamp))
    return folder


def tree(root: Path) -> Path:
    """Write releases of both components, with plugins."""
    for version in ("1.22.0", "1.22.1", "1.23.0"):
        release(root, "serving", version)
        release(root, "eventing", version)
    for minor in ("1.22", "1.23"):
        for plugin in ("istio", "contour", "kourier", "gateway-api"):
            write(root / "ingress" / minor / plugin / "net.yaml", config_map(f"net-{plugin}"))
        for source in ("ceph", "github", "gitlab", "kafka", "rabbitmq", "redis"):
            write(root / "eventing-source" / minor / source / "s.yaml", config_map(source))
    write(root / "security-guard" / "0.6" / "guard.yaml", config_map("guard"))
    return root


def releases(root: Path, cache: Path) -> Releases:
    """The releases in a folder."""
    return Releases(root, cache=ParsedCache(cache))


def serving(*, status: dict[str, Any] | None = None, **spec: Any) -> KnativeServing:
    """A KnativeServing without ingress, unless the spec has one."""
    return decode(
        {
            "metadata": {"name": "one", "namespace": "knative"},
            "spec": {"ingress": {}, **spec},
            "status": status or {},
        },
        KnativeServing,
    )


def eventing(*, status: dict[str, Any] | None = None, **spec: Any) -> KnativeEventing:
    """A KnativeEventing."""
    return decode(
        {
            "metadata": {"name": "one", "namespace": "knative"},
            "spec": spec,
            "status": status or {},
        },
        KnativeEventing,
    )


def urls(*urls: object) -> list[dict[str, str]]:
    """A list of manifests as a spec has it."""
    return [{"URL": str(url)} for url in urls]
