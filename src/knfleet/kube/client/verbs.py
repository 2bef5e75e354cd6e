"""The verbs of Kubernetes, on one cluster.

Manifests go in and come out as plain dicts. Every call ends before its deadline, is sent again only
when that is safe (see `kube.retry`), and fails with an error of `kube.errors` that names the
cluster, the verb and the path. Without a namespace, namespaced objects are looked for in the
connection's own; a list or watch without one is about all namespaces.
"""

from collections.abc import Sequence
from functools import partial
from typing import cast
from urllib.parse import parse_qs

from knfleet.api.meta import Key, Object, Resource
from knfleet.kube.cache.watch import WatchEvent
from knfleet.kube.client import retry, write_records
from knfleet.kube.client.options import ClientObserver, ClientOptions
from knfleet.kube.client.reader import ListSelection, Reader, query_string
from knfleet.kube.client.responses import ObjectList, name_kind

__all__ = ["Client", "ClientObserver", "ClientOptions", "ListSelection", "ObjectList", "WatchEvent"]

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class Client(Reader):
    """Reads and writes the objects of one cluster."""

    async def request(
        self,
        verb: retry.RequestVerb,
        path: str,
        *,
        query: str = "",
        body: Object | Sequence[Object] | None = None,
        content_type: str = "application/json",
        metadata_only: bool = False,
        deadline: float | None = None,
    ) -> Object:
        """Send a request about one object; observers are notified of writes."""
        sent = super().request(
            verb,
            path,
            query=query,
            body=body,
            content_type=content_type,
            metadata_only=metadata_only,
            deadline=deadline,
        )
        if not write_records.handlers or is_harmless(verb, query, body):
            return await sent
        manager = next(iter(parse_qs(query.lstrip("?")).get("fieldManager", ())), "")
        tell = partial(self.tell, verb, path, body, manager=manager)
        try:
            answer = await sent
        except Exception as error:
            tell(error)
            raise
        tell(answer)
        return answer

    def tell(
        self,
        verb: retry.RequestVerb,
        path: str,
        body: Object | Sequence[Object] | None,
        outcome: Object | Exception,
        *,
        manager: str,
    ) -> None:
        """Tell of a write that ended."""
        cluster = str(self.cluster)
        write_records.tell(
            write_records.record_of(cluster, verb.name, path, body, outcome, manager=manager)
        )

    async def create(
        self,
        resource: Resource,
        manifest: Object,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        deadline: float | None = None,
    ) -> Object:
        """Make an object; with a name and subresource, something below an object (pods/binding)."""
        namespace = namespace or self.home(manifest)
        return await self.request(
            retry.CREATE.dry() if dry_run else retry.CREATE,
            resource.path(namespace, name, subresource),
            query=self.write_query(dry_run=dry_run),
            body=manifest,
            deadline=deadline,
        )

    async def replace(
        self,
        resource: Resource,
        manifest: Object,
        *,
        subresource: str = "",
        dry_run: bool = False,
        deadline: float | None = None,
    ) -> Object:
        """Replace an object; with a resource version, only if it was not changed meanwhile."""
        path = resource.path(self.home(manifest), manifest["metadata"]["name"], subresource)
        query = self.write_query(dry_run=dry_run)
        return await self.request(
            retry.REPLACE, path, query=query, body=manifest, deadline=deadline
        )

    async def apply(
        self,
        resource: Resource,
        manifest: Object,
        *,
        manager: str | None = None,
        force: bool = True,
        dry_run: bool = False,
        subresource: str = "",
        metadata_only: bool = False,
        deadline: float | None = None,
    ) -> Object:
        """Make the fields of a manifest so, by server-side apply.

        Without `force`, `Conflict` names the fields that belong to another client. With
        `metadata_only`, the server answers with the metadata alone, which spares both sides work.
        """
        answer = await self.request(
            retry.APPLY,
            resource.path(self.home(manifest), manifest["metadata"]["name"], subresource),
            query=self.write_query(manager=manager, force=force, dry_run=dry_run),
            body=manifest,
            content_type=APPLY_PATCH,
            metadata_only=metadata_only,
            deadline=deadline,
        )
        if metadata_only:
            name_kind(answer, resource)
        return answer

    async def patch(
        self,
        resource: Resource,
        key: Key,
        patch: Object | Sequence[Object],
        *,
        strategic: bool = False,
        subresource: str = "",
        dry_run: bool = False,
        deadline: float | None = None,
    ) -> Object:
        """Change an object by a merge patch (a dict), or by a JSON patch (a list)."""
        merge = STRATEGIC_PATCH if strategic else MERGE_PATCH
        verb = retry.patch_verb(patch)
        return await self.request(
            verb.dry() if dry_run else verb,
            resource.path(key.namespace or self.namespace, key.name, subresource),
            query=self.write_query(dry_run=dry_run),
            body=patch,
            content_type=merge if isinstance(patch, dict) else JSON_PATCH,
            deadline=deadline,
        )

    async def delete(
        self,
        resource: Resource,
        key: Key,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
        grace_seconds: int | None = None,
        dry_run: bool = False,
        deadline: float | None = None,
    ) -> Object:
        """Delete an object: this very one if a uid is given, this very state of it by version.

        Returns the object as it was, or a Status.
        """
        verb = retry.DELETE if uid or resource_version else retry.DELETE_ONCE
        conditions = {"uid": uid, "resourceVersion": resource_version}
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {name: value for name, value in conditions.items() if value},
            "propagationPolicy": propagation or None,
            "gracePeriodSeconds": grace_seconds,
            "dryRun": ["All"] if dry_run else None,
        }
        return await self.request(
            verb.dry() if dry_run else verb,
            resource.path(key.namespace or self.namespace, key.name),
            body={name: value for name, value in options.items() if value not in (None, {})},
            deadline=deadline,
        )

    async def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        propagation: str = "",
        deadline: float | None = None,
    ) -> None:
        """Delete all objects of a collection that a selector matches."""
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        await self.request(
            retry.DELETE_COLLECTION,
            resource.path(namespace or self.namespace),
            query=query_string({**selectors, "propagationPolicy": propagation}),
            deadline=deadline,
        )

    def home(self, manifest: Object) -> str:
        """The namespace that a manifest belongs to, if its kind has any."""
        return manifest.get("metadata", {}).get("namespace") or self.namespace

    def write_query(
        self, *, manager: str | None = None, force: bool | None = None, dry_run: bool = False
    ) -> str:
        return query_string(
            {
                "fieldManager": manager or self.options.manager,
                "force": "" if force is None else str(force).lower(),
                # Of an apply, the server would parse the body a second time for nothing but
                # warnings; fields that it does not know are errors all the same.
                "fieldValidation": "" if force is None else "Ignore",
                "dryRun": "All" if dry_run else "",
            }
        )


def is_harmless(verb: retry.RequestVerb, query: str, body: object) -> bool:
    """Whether a request changes nothing."""
    options = cast("Object", body) if isinstance(body, dict) else {}
    is_dry = "dryRun=All" in query or options.get("dryRun") == ["All"]
    return verb.method in retry.SAFE_METHODS or is_dry
