"""Knative's ClusterRoles on a joined cluster: which `join` may write, and `unjoin` remove."""

from collections.abc import Sequence

from knfleet.api.core import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.apply.manifest_fields import part
from knfleet.apply.plan.provided_roles import is_provided
from knfleet.kube.client.verbs import Client


async def without_foreign_roles(client: Client, objects: Sequence[Object]) -> list[Object]:
    """Objects without roles for Knative that are there already and are not ours.

    Knative may be installed by other means, in a release that needs other rights.
    """
    if not any(map(is_provided, objects)):
        return list(objects)
    found = await client.list(CLUSTER_ROLES, metadata_only=True)
    foreign = {each["metadata"]["name"] for each in found.items if not is_provided(each)}
    return [
        each for each in objects if not (is_provided(each) and each["metadata"]["name"] in foreign)
    ]


async def unused_roles(client: Client) -> list[Object]:
    """The roles that were made for Knative, unless one of them is bound: then it is installed."""
    roles = await client.list(
        CLUSTER_ROLES, labels=f"{well_known.PROVIDED}=true", metadata_only=True
    )
    if not roles.items:
        return []
    names = {each["metadata"]["name"] for each in roles.items}
    bindings = await client.list(CLUSTER_ROLE_BINDINGS)
    if any(part(each, "roleRef").get("name") in names for each in bindings.items):
        return []
    kind = {"apiVersion": CLUSTER_ROLES.api_version, "kind": CLUSTER_ROLES.kind}
    return [{**kind, "metadata": {"name": name}} for name in sorted(names)]
