"""ManagedClusterAddOn, as far as agents and detaching need it: v1beta1, which they watch."""

from typing import Annotated, ClassVar

from msgspec import Struct

from knfleet.api.conditions import BY_TYPE, StandardCondition
from knfleet.api.meta import Resource
from knfleet.api.schema import Free, ObjectMeta, doc

GROUP = "addon.open-cluster-management.io"
ADDONS = Resource(GROUP, "v1beta1", "ManagedClusterAddOn", "managedclusteraddons")

OPEN = {"x-kubernetes-preserve-unknown-fields": True}


class AddOnSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How an add-on is configured on one cluster."""

    configs: Annotated[list[Free], doc("Configurations, by group, resource, namespace, name.")] = []


class AddOnStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How an add-on stands on one cluster."""

    conditions: Annotated[
        list[StandardCondition], doc("Conditions, keyed by type.", **BY_TYPE)
    ] = []
    namespace: Annotated[str, doc("Namespace on the cluster.")] = ""
    registrations: Annotated[list[Free], doc("Requested registrations of the add-on.")] = []


class ManagedClusterAddOn(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An add-on on one cluster."""

    resource: ClassVar[Resource] = ADDONS

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[AddOnSpec, doc("Configuration of the add-on.", **OPEN)] = AddOnSpec()
    status: Annotated[AddOnStatus, doc("Status of the add-on.", **OPEN)] = AddOnStatus()
