"""What the add-on manager watches beside the clusters."""

from weakref import WeakKeyDictionary

from msgspec.structs import replace

from knfleet.api.addon.addon_configuration import ConfigReferent, ConfigType
from knfleet.api.addon.addondeploymentconfig import CONFIGS, AddOnDeploymentConfig
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES, AddOnTemplate
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS, ClusterManagementAddOn
from knfleet.api.addon.managedclusteraddon import ADDONS, ConfigReference, ManagedClusterAddOn
from knfleet.api.addon.names import ADDON_LABEL, ADDON_NAMESPACE_LABEL, TEMPLATE_LABEL
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL
from knfleet.api.cluster.placement import Placement
from knfleet.api.core import ROLE_BINDINGS
from knfleet.api.meta import Key, Object
from knfleet.api.schema import DecodeError, decode
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.addon.resolution import DEPLOYMENT_CONFIG, TEMPLATE
from knfleet.hub.addon.spec_hash import spec_hash
from knfleet.hub.context import HubContext
from knfleet.hub.informers import HubInformers
from knfleet.hub.placement.decisions.decision_groups import decided_groups
from knfleet.hub.rollout.rollout_model import Group


def name_index(manifest: Object) -> list[str]:
    """The name of an object."""
    return [manifest["metadata"]["name"]]


def namespace_index(manifest: Object) -> list[str]:
    """The namespace of an object."""
    return [manifest["metadata"]["namespace"]]


def labels_of(manifest: Object) -> dict[str, str]:
    """The labels of an object."""
    return manifest["metadata"].get("labels") or {}


def addon_key(work: Object) -> Key:
    """The ManagedClusterAddOn that a work belongs to."""
    labels = labels_of(work)
    cluster = labels.get(ADDON_NAMESPACE_LABEL) or work["metadata"]["namespace"]
    return Key(cluster, labels.get(ADDON_LABEL, ""))


def binding_key(binding: Object) -> Key:
    """The ManagedClusterAddOn that a RoleBinding belongs to."""
    labels = labels_of(binding)
    return Key(labels.get(CLUSTER_NAME_LABEL, ""), labels.get(ADDON_LABEL, ""))


def addon_informers(context: HubContext) -> "AddOnInformers":
    """What the add-on manager watches; its controllers share it."""
    known = SHARED.get(context.informers)
    if known is None:
        known = SHARED[context.informers] = AddOnInformers(context.informers)
    return known


class AddOnInformers:
    """The collections that add-ons consist of."""

    def __init__(self, informers: HubInformers) -> None:
        shared = informers.shared
        self.cluster_addons = shared(CLUSTER_ADDONS)
        self.addons = shared(ADDONS, indexes={"name": name_index, "cluster": namespace_index})
        self.templates = shared(ADDON_TEMPLATES)
        self.configs = shared(CONFIGS)
        self.works = shared(
            WORKS, labels=ADDON_LABEL, indexes={"addon": lambda work: [str(addon_key(work))]}
        )
        self.role_bindings = shared(
            ROLE_BINDINGS,
            labels=TEMPLATE_LABEL,
            indexes={"addon": lambda binding: [str(binding_key(binding))]},
        )
        self.placements = informers.placements
        self.decisions = informers.decisions
        self.decoded: dict[Key, ManagedClusterAddOn] = {}
        self.hashes: dict[tuple[str, str], tuple[str, str]] = {}
        """By kind and key of a configuration its resource version and hash."""

    def cluster_addon(self, name: str) -> ClusterManagementAddOn | None:
        """An add-on of the fleet; None also when it cannot be read."""
        manifest = self.cluster_addons.get(Key("", name))
        try:
            return None if manifest is None else decode(manifest, ClusterManagementAddOn)
        except DecodeError:
            return None

    def addon(self, key: Key) -> ManagedClusterAddOn | None:
        """An add-on on a cluster."""
        manifest = self.addons.get(key)
        if manifest is None:
            self.decoded.pop(key, None)
            return None
        return self.decoded_addon(manifest)

    def addons_named(self, name: str) -> list[ManagedClusterAddOn]:
        """An add-on on all its clusters."""
        return [self.decoded_addon(each) for each in self.addons.by_index("name", name)]

    def decoded_addon(self, manifest: Object) -> ManagedClusterAddOn:
        """An add-on on a cluster, which is decoded once for each state."""
        key, version = Key.of(manifest), manifest["metadata"].get("resourceVersion", "")
        known = self.decoded.get(key)
        if known is None or known.metadata.resource_version != version:
            known = self.decoded[key] = decode(manifest, ManagedClusterAddOn)
        return known

    def template(self, name: str) -> AddOnTemplate | None:
        """A template."""
        manifest = self.templates.get(Key("", name))
        return None if manifest is None else decode(manifest, AddOnTemplate)

    def config(self, referent: ConfigReferent) -> AddOnDeploymentConfig | None:
        """A deployment configuration."""
        manifest = self.configs.get(Key(referent.namespace, referent.name))
        return None if manifest is None else decode(manifest, AddOnDeploymentConfig)

    def config_manifest(self, type_: ConfigType, referent: ConfigReferent) -> Object | None:
        """A configuration of our own kinds.

        Templates have no namespace, whatever a reference says.
        """
        if type_ == TEMPLATE:
            return self.templates.get(Key("", referent.name))
        if type_ == DEPLOYMENT_CONFIG:
            return self.configs.get(Key(referent.namespace, referent.name))
        return None

    def observed(self, reference: ConfigReference) -> ConfigReference:
        """A configuration in use with the generation in which it was read."""
        wanted = reference.desired_config
        manifest = self.config_manifest(reference.type, wanted.referent) if wanted else None
        if manifest is None:
            return reference
        return replace(reference, last_observed_generation=manifest["metadata"]["generation"])

    def config_hash(self, type_: ConfigType, referent: ConfigReferent) -> str:
        """The hash of a configuration of our own kinds; empty when it does not exist."""
        manifest = self.config_manifest(type_, referent)
        if manifest is None:
            return ""
        version = str(manifest["metadata"]["resourceVersion"])
        cached = (type_.resource, str(Key.of(manifest)))
        known = self.hashes.get(cached)
        if known is None or known[0] != version:
            known = self.hashes[cached] = (version, spec_hash(manifest))
        return known[1]

    def placement(self, key: Key) -> Placement | None:
        """A Placement."""
        manifest = self.placements.get(key)
        return None if manifest is None else decode(manifest, Placement)

    def groups(self, placement: Key) -> tuple[Group, ...]:
        """The clusters that a Placement selected, by decision group."""
        return decided_groups(self.decisions.by_index("placement", str(placement)))

    def works_of(self, addon: Key) -> list[Object]:
        """All works that say by labels that they are an add-on's, wherever they are."""
        return self.works.by_index("addon", str(addon))

    def own_works(self, addon: ManagedClusterAddOn) -> list[Object]:
        """The works of an add-on on its cluster and on the one that hosts it.

        Labels alone say nothing: a user of any cluster's namespace, or of a replica set, sets them.
        """
        return [each for each in self.works_of(addon.key) if is_own(each, addon)]


def is_own(work: Object, addon: ManagedClusterAddOn) -> bool:
    """Whether a work with the labels of an add-on is where that has works, and belongs to it."""
    metadata: Object = work["metadata"]
    if metadata["namespace"] != addon.cluster:
        return metadata["namespace"] == addon.hosting_cluster
    owners: list[Object] = metadata.get("ownerReferences") or []
    return any(each["uid"] == addon.metadata.uid for each in owners)


SHARED: WeakKeyDictionary[HubInformers, AddOnInformers] = WeakKeyDictionary()
