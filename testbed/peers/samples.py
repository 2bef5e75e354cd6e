"""What a corpus is made of: custom resources, and what there is beside them."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from knfleet.api.knative.resources import GROUP, VERSION, Knative, KnativeEventing, KnativeServing
from knfleet.api.meta import Object
from knfleet.api.schema import decode

FILES = "${FILES}"
KODATA = "${KODATA}"


class Sample(Struct, frozen=True, kw_only=True):
    """One custom resource that both must make the same of."""

    name: str
    manifest: Object
    """Where `${FILES}` and `${KODATA}` stand for folders."""
    files: dict[str, list[Object]] = {}
    """Manifests that the custom resource names, below `${FILES}`."""
    beforehand: tuple[Object, ...] = ()
    """Objects that are on the cluster already."""
    minimum_kubernetes: str = ""
    """The operator's own `KUBERNETES_MIN_VERSION`."""
    again: bool = False
    """Whether the operator is made to look at the custom resource once more when it is ready."""
    quick: bool = False
    """Whether it is among the few that are compared when there is little time."""

    @property
    def namespace(self) -> str:
        """Where the custom resource lives."""
        return self.manifest["metadata"]["namespace"]

    @property
    def digest(self) -> str:
        """Of all that it consists of, whatever it is called."""
        parts = [self.manifest, self.files, self.beforehand, self.minimum_kubernetes]
        parts += [self.again] if self.again else []
        return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()

    def placed(self, files: Path, kodata: Path) -> Object:
        """The custom resource with its files written, and named where they are."""
        for name, objects in self.files.items():
            (files / name).write_bytes(
                b"\n---\n".join(msgspec.json.encode(manifest) for manifest in objects)
            )
        text = msgspec.json.encode(self.manifest).decode()
        return msgspec.json.decode(text.replace(FILES, str(files)).replace(KODATA, str(kodata)))


def typed(manifest: Object) -> Knative:
    """A custom resource as ours reads it."""
    kind = KnativeServing if manifest["kind"] == "KnativeServing" else KnativeEventing
    return decode(manifest, kind)


def serving(name: str, spec: Object, *, namespace: str = "knative-serving", **more: Any) -> Sample:
    """A sample with a KnativeServing."""
    return sample("KnativeServing", f"serving-{name}", spec, namespace, **more)


def eventing(
    name: str, spec: Object, *, namespace: str = "knative-eventing", **more: Any
) -> Sample:
    """A sample with a KnativeEventing."""
    return sample("KnativeEventing", f"eventing-{name}", spec, namespace, **more)


def sample(kind: str, name: str, spec: Object, namespace: str, **more: Any) -> Sample:
    """A sample with a custom resource of either kind."""
    manifest: Object = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind,
        "metadata": {"name": "knative", "namespace": namespace},
        "spec": spec,
    }
    return Sample(name=name, manifest=manifest, **more)
