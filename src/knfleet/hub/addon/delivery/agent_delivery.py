"""From the desired configurations of a template add-on to what is delivered to its cluster. Pure.

Only configurations whose hash is the desired one are used: while a rollout has not released a
change for a cluster, what was delivered there before stays.
"""

from collections.abc import Callable

from msgspec import Struct

from knfleet.api.addon.addon_configuration import ConfigReferent
from knfleet.api.addon.addondeploymentconfig import AddOnDeploymentConfig
from knfleet.api.addon.addontemplate import AddOnTemplate
from knfleet.api.addon.managedclusteraddon import ConfigReference, ManagedClusterAddOn
from knfleet.api.addon.names import (
    HOSTING_CLEANUP,
    HOSTING_PRE_DELETE,
    PERMISSION_CLEANUP,
    PRE_DELETE,
)
from knfleet.api.meta import Object
from knfleet.hub.addon.delivery.addon_works import Delivery, WorksError, delivery
from knfleet.hub.addon.delivery.deployment_settings import SettingsError, settings_of
from knfleet.hub.addon.delivery.template import RenderedAddOn, TemplateError, render
from knfleet.hub.addon.registration.agent_rights import PermissionProblem, permissions
from knfleet.hub.addon.resolution import DEPLOYMENT_CONFIG, TEMPLATE, Hashes

OUR_FINALIZERS = (PRE_DELETE, HOSTING_PRE_DELETE, HOSTING_CLEANUP, PERMISSION_CLEANUP)


class Sources(Struct, frozen=True):
    """Where templates and configurations are found."""

    template: Callable[[str], AddOnTemplate | None]
    config: Callable[[ConfigReferent], AddOnDeploymentConfig | None]
    hashes: Hashes


class PreparedAddOn(Struct, frozen=True):
    """What an add-on consists of on one cluster."""

    template: AddOnTemplate
    rendered: RenderedAddOn
    delivery: Delivery
    bindings: list[Object]
    """RoleBindings of its agent on the hub."""

    def finalizers(self, addon: ManagedClusterAddOn) -> list[str]:
        """What must be done before the add-on is gone, as finalizers say it."""
        found: list[str] = []
        if self.delivery.managed_hooks:
            found.append(PRE_DELETE)
        if self.delivery.hosting_hooks:
            found.append(HOSTING_PRE_DELETE)
        if self.delivery.hosting:
            found.append(HOSTING_CLEANUP)
        if any(each["metadata"]["namespace"] != addon.cluster for each in self.bindings):
            found.append(PERMISSION_CLEANUP)
        return found


class DeliveryProblem(Struct, frozen=True):
    """Why an add-on cannot be delivered."""

    text: str
    is_permission: bool = False


def desired_references(addon: ManagedClusterAddOn, of_type: object) -> list[ConfigReference]:
    """The desired configurations of a type, in their order."""
    return [
        each
        for each in addon.status.config_references
        if each.type == of_type and each.desired_config is not None
    ]


def prepare(
    addon: ManagedClusterAddOn, sources: Sources, cluster_annotations: dict[str, str]
) -> PreparedAddOn | DeliveryProblem | None:
    """What an add-on consists of on its cluster; None while that is not to be changed."""
    references = [
        *(templates := desired_references(addon, TEMPLATE)),
        *(deployments := desired_references(addon, DEPLOYMENT_CONFIG)),
    ]
    if not templates or not all(is_current(each, sources.hashes) for each in references):
        return None
    template = sources.template(referent(templates[-1]).name)
    configs = [found for each in deployments if (found := sources.config(referent(each)))]
    if template is None:
        return None
    if template.spec.addon_name != addon.name:
        return DeliveryProblem(
            f"AddOnTemplate {template.metadata.name} is for add-on {template.spec.addon_name}, not"
            f" {addon.name}; correct its spec.addonName, or refer to another template"
        )
    try:
        settings = settings_of(configs, cluster_annotations)
        rendered = render(template, settings, addon.cluster, addon.name)
        divided = delivery(rendered, hosted=bool(addon.hosting_cluster))
    except (SettingsError, TemplateError, WorksError) as error:
        return DeliveryProblem(str(error))
    bindings = permissions(addon, template.spec.registration)
    if isinstance(bindings, PermissionProblem):
        text = f"AddOnTemplate {template.metadata.name}: {bindings.text}"
        return DeliveryProblem(text, is_permission=True)
    return PreparedAddOn(template, rendered, divided, bindings)


def referent(reference: ConfigReference) -> ConfigReferent:
    """The configuration that a reference desires."""
    if reference.desired_config is None:
        return ConfigReferent(name=reference.name, namespace=reference.namespace)
    return reference.desired_config.referent


def is_current(reference: ConfigReference, hashes: Hashes) -> bool:
    """Whether a configuration is now as the reference desires it."""
    wanted = reference.desired_config.spec_hash if reference.desired_config else ""
    return bool(wanted) and hashes(reference.type, referent(reference)) == wanted
