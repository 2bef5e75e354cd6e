"""References to configurations of add-ons, which both API versions share."""

from typing import Annotated, Any

from msgspec import Struct, field

from knfleet.api.schema import doc


def map_by(*keys: str) -> dict[str, Any]:
    """The schema of a list with elements that some fields distinguish."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


class ConfigReferent(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A configuration, by namespace and name."""

    name: Annotated[str, doc("Name of the configuration.", minLength=1)]
    namespace: Annotated[str, doc("Its namespace; empty when its kind has none.")] = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ConfigSpecHash(ConfigReferent, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A configuration as it was when its spec had a hash."""

    spec_hash: Annotated[str, doc("SHA-256 of its spec.")] = ""

    @property
    def referent(self) -> ConfigReferent:
        """Which configuration it is."""
        return ConfigReferent(name=self.name, namespace=self.namespace)


class ConfigType(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, order=True):
    """A kind of configuration, by group and resource."""

    resource: Annotated[str, doc("Plural name of the kind.", minLength=1)]
    # A factory's default is not left out, unlike a value.
    group: Annotated[str, doc("API group; empty for the core group.", **{"x-default": ""})] = field(
        default_factory=str
    )

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class AddOnConfig(ConfigType, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A configuration of some kind."""

    name: Annotated[str, doc("Name of the configuration.", minLength=1)]
    namespace: Annotated[str, doc("Its namespace; empty when its kind has none.")] = ""

    @property
    def type(self) -> ConfigType:
        """Which kind of configuration it is."""
        return ConfigType(group=self.group, resource=self.resource)

    @property
    def referent(self) -> ConfigReferent:
        """Which configuration it is."""
        return ConfigReferent(name=self.name, namespace=self.namespace)


class AddOnMeta(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What an add-on is, for people."""

    display_name: Annotated[str, doc("Name to show.")] = ""
    description: Annotated[str, doc("What it is for.")] = ""


class AddOnCoordinates(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Deprecated: the custom resource that configures an add-on."""

    crd_name: Annotated[str, doc("Name of its CRD.")] = ""
    cr_name: Annotated[str, doc("Name of the custom resource.")] = ""
    last_observed_generation: Annotated[int, doc("Generation that was last read.")] = 0
