"""Names of things in Kubernetes: resources, keys, clusters.

A manifest is a plain dict (`Object`) and stays one from the file to the wire; everything that names
or addresses a manifest is a small frozen value from this module.
"""

from typing import Any, NewType
from urllib.parse import quote

from msgspec import Struct

Object = dict[str, Any]
"""One manifest, as decoded from JSON or YAML."""

ClusterName = NewType("ClusterName", str)
"""The name by which this process knows a cluster; the hub is `HUB`."""

HUB = ClusterName("hub")


class Key(Struct, frozen=True, order=True):
    """Namespace and name of an object; the namespace of a cluster-scoped one is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @classmethod
    def of(cls, manifest: Object) -> "Key":
        meta = manifest["metadata"]
        return cls(meta.get("namespace", ""), meta["name"])


class Request(Struct, frozen=True, order=True):
    """One thing to look at: an object's key, and the cluster it lives on."""

    cluster: ClusterName
    key: Key

    def __str__(self) -> str:
        return f"{self.cluster}://{self.key}"


class Resource(Struct, frozen=True, order=True):
    """One kind as an API server serves it."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` that manifests of this kind carry."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of a part of it."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=":"))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def api_group(api_version: str) -> tuple[str, str]:
    """Group and version of an `apiVersion` string."""
    group, _, version = api_version.rpartition("/")
    return group, version
