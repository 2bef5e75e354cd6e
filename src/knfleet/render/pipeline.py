"""Which steps make the desired objects, and in which order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from knfleet.api.core import DEPLOYMENTS
from knfleet.api.knative.resources import Knative, KnativeEventing, KnativeServing
from knfleet.api.meta import Key, Object, Resource
from knfleet.render.drafts import Draft, as_map, draft, flatten, unique
from knfleet.render.errors import RenderError
from knfleet.render.eventing.defaults import set_broker_class, set_selection_mode
from knfleet.render.eventing.ping_source import NAME as PING_SOURCE
from knfleet.render.eventing.ping_source import keep_running
from knfleet.render.ingress.istio import override_gateway, place_services
from knfleet.render.ingress.kourier import (
    configure_service,
    place_bootstrap,
    place_controller,
    use_bootstrap,
)
from knfleet.render.jobs import name_job
from knfleet.render.minimum_version import set_minimum_version
from knfleet.render.namespace import decorate, move
from knfleet.render.overrides.budgets import override_budget
from knfleet.render.overrides.certificates import check_certs, encrypts, is_tls, trust
from knfleet.render.overrides.configmaps import configure
from knfleet.render.overrides.images import check_registry, set_images
from knfleet.render.overrides.replicas import autoscaled, make_available
from knfleet.render.overrides.services import override_service
from knfleet.render.overrides.workloads import override_workload, set_resources
from knfleet.render.ownership import COMPONENT_LABELS, Owner, label, own
from knfleet.render.references import follow, release_namespaces
from knfleet.render.roles import leave_rules
from knfleet.render.scopes import Scopes, from_definitions
from knfleet.render.security_guard import allow_pod_info
from knfleet.render.warnings import warnings

Step = Callable[[Draft], None]
"""Changes one object in place, if it is one that it knows."""

Need = tuple[Resource, Key]
"""An object on the target cluster that must be read before rendering."""


class RenderFacts(Struct, frozen=True, kw_only=True):
    """What is known beside the custom resource and the release's objects."""

    version: str
    """The full version that is being installed."""
    owner: Owner | None = None
    """The owner of everything in the namespace; none while nothing is applied."""
    live: Mapping[Need, Object] = {}
    """Of what `needs` asked for, what there is."""
    scopes: Scopes = {}
    """Which kinds live in a namespace, as the target serves them."""
    minimum_kubernetes: str = ""
    """The oldest Kubernetes that Knative should accept, if it is not to decide for itself."""


class Rendered(Struct, frozen=True, weakref=True):
    """The objects that must exist, each once, in the release's order."""

    objects: list[Object]
    warnings: list[str]
    """Settings of the custom resource that do nothing, one sentence each."""


def needs(objects: Iterable[Object], cr: Knative) -> list[Need]:
    """What `render` must know of the target cluster; an object that is not there is left out."""
    if isinstance(cr, KnativeServing):
        return []
    return [
        (DEPLOYMENTS, Key(cr.metadata.namespace, PING_SOURCE))
        for manifest in flatten(objects)
        if manifest.get("kind") == "Deployment"
        and as_map(manifest.get("metadata")).get("name") == PING_SOURCE
    ][:1]


def render(
    objects: Sequence[Object], cr: Knative, facts: RenderFacts, extra: Sequence[Step] = ()
) -> Rendered:
    """The objects that a custom resource asks for, from those of its release.

    `objects` stay as they are, and are shared in part with the result: change neither.
    Raises RenderError, which names the custom resource and the field or object.
    """
    try:
        drafts = [draft(manifest) for manifest in flatten(objects)]
        for step in steps(cr, facts, drafts, extra):
            for one in drafts:
                step(one)
    except RenderError as error:
        raise error.about(cr.resource.kind, cr.key) from error.__cause__
    wanted = [one for one in drafts if is_wanted(one, cr)]
    return Rendered([one.manifest for one in unique(wanted)], warnings(drafts, cr.spec))


def is_wanted(one: Draft, cr: Knative) -> bool:
    """Whether the object is installed: those that need cert-manager only with encryption."""
    return isinstance(cr, KnativeServing) or encrypts(cr.spec) or not is_tls(one)


def steps(
    cr: Knative, facts: RenderFacts, drafts: list[Draft], extra: Sequence[Step]
) -> Iterable[Step]:
    """All steps, in order."""
    yield from placement(cr, facts, drafts)
    yield from common(cr, facts, drafts)
    if facts.owner is not None:
        yield partial(own, owner=facts.owner)
    if isinstance(cr, KnativeServing):
        yield from serving(cr, extra)
    else:
        yield from eventing(cr, facts, extra)


def placement(cr: Knative, facts: RenderFacts, drafts: list[Draft]) -> Iterable[Step]:
    """Steps that move everything into the custom resource's namespace."""
    namespace = cr.metadata.namespace
    defined = from_definitions(one.manifest for one in drafts)
    old = release_namespaces(drafts, COMPONENT_LABELS[cr.component])
    yield partial(move, to=namespace, scopes={**defined, **facts.scopes})
    yield partial(follow, old=old - {namespace}, to=namespace)
    yield partial(decorate, settings=cr.spec.namespace_settings)


def common(cr: Knative, facts: RenderFacts, drafts: list[Draft]) -> Iterable[Step]:
    """Steps for both components."""
    spec, overrides = cr.spec, cr.spec.overrides
    scaled = autoscaled(drafts)
    check_registry(spec.registry)
    if spec.high_availability is not None:
        replicas = spec.high_availability.replicas
        yield partial(make_available, replicas=replicas, overrides=overrides, scaled=scaled)
    yield partial(set_images, registry=spec.registry)
    yield partial(name_job, component=cr.component, version=facts.version)
    yield partial(configure, spec=spec)
    if facts.minimum_kubernetes:
        yield partial(set_minimum_version, version=facts.minimum_kubernetes)
    yield partial(set_resources, resources=spec.resources, overrides=overrides)
    yield partial(override_workload, overrides=overrides, scaled=scaled)
    yield partial(override_service, overrides=spec.services)
    yield partial(override_budget, overrides=spec.pod_disruption_budgets)
    yield leave_rules


def serving(cr: KnativeServing, extra: Sequence[Step]) -> Iterable[Step]:
    """Steps for Serving alone."""
    certs, ingress = cr.spec.controller_custom_certs, cr.spec.ingress_plugins
    if certs is not None and (certs.type or certs.name):
        check_certs(certs)
        yield partial(trust, certs=certs)
    yield partial(label, component="serving")
    yield from extra
    if ingress.istio.enabled:
        yield partial(override_gateway, istio=ingress.istio)
    if ingress.kourier.enabled:
        yield place_controller
        yield place_bootstrap
        yield partial(configure_service, kourier=ingress.kourier)
        if ingress.kourier.bootstrap_configmap:
            yield partial(use_bootstrap, config_map=ingress.kourier.bootstrap_configmap)
    yield partial(place_services, spec=cr.spec, namespace=cr.metadata.namespace)
    if cr.spec.guarded:
        yield allow_pod_info


def eventing(cr: KnativeEventing, facts: RenderFacts, extra: Sequence[Step]) -> Iterable[Step]:
    """Steps for Eventing alone."""
    yield partial(set_broker_class, spec=cr.spec)
    yield partial(set_selection_mode, spec=cr.spec)
    live = facts.live.get((DEPLOYMENTS, Key(cr.metadata.namespace, PING_SOURCE)))
    if live is not None:
        yield partial(keep_running, live=live)
    yield partial(label, component="eventing")
    yield from extra
