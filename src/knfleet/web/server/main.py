"""The dashboard beside a hub, and inside one.

Beside a hub it watches for itself, with the kubeconfig's rights: kinds that may not be listed
everywhere are watched in the namespaces in which they may. Inside a hub it shows what the hub's
controllers watch anyway.
"""

import asyncio
from collections.abc import Callable, Iterable

from msgspec import Struct

from knfleet.api.core import NAMESPACES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Resource
from knfleet.api.work.manifestwork import WORKS
from knfleet.clusters.provider_file import ProviderFile
from knfleet.hub.addon.addon_informers import addon_informers
from knfleet.hub.main import HubProcess, HubSettings
from knfleet.hub.work.work_cache import work_informer
from knfleet.kube.cache.informer import Informer, without_managed_fields
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import KubeError
from knfleet.operator.main import OneTimeTask, Operator
from knfleet.release.releases import Releases
from knfleet.runtime.logs import log
from knfleet.runtime.manager import Manager
from knfleet.web.live.feed import HubFeed
from knfleet.web.pages.detail import DetailSources
from knfleet.web.pages.version_matrix import Known
from knfleet.web.server.authorization import MOST_NAMESPACES, SHOWN_KINDS, may
from knfleet.web.server.server import Dashboard
from knfleet.web.server.settings import WebSettings

USER_AGENT = "knfleet-web"


class StandaloneDashboard(Struct, frozen=True, kw_only=True):
    """What a dashboard beside a hub is made of."""

    connection: Connection
    settings: WebSettings
    providers: ProviderFile | None = None
    releases: Releases | None = None
    namespaces: tuple[str, ...] = ()
    """Where to look, if one may not look everywhere nor list namespaces."""
    ready: Callable[[str], None] = lambda _: None
    """Called with the address once there is one."""


def known_of(releases: Releases | None) -> Known | None:
    """The releases that are at hand, by kind."""
    if releases is None:
        return None
    return {
        SERVINGS.kind: releases.versions("serving"),
        EVENTINGS.kind: releases.versions("eventing"),
    }


async def build(manager: Manager, *, beside: StandaloneDashboard) -> None:
    """Fill a manager with a dashboard of its own."""
    client = Client(beside.connection, ClientOptions(user_agent=USER_AGENT))
    manager.close_last(client.close)
    feed = HubFeed()
    releases = beside.releases
    sources = DetailSources(client, feed, beside.providers, known_of(releases), releases)
    dashboard = Dashboard(beside.connection, sources, beside.settings)
    for informer in await informers(client, beside.namespaces):
        feed.follow(informer)
        manager.add(informer, f"{informer.resource.kind} informer")
    manager.add(dashboard, "dashboard")
    manager.add(OneTimeTask(lambda: announce(dashboard, beside.ready)), "address")


async def announce(dashboard: Dashboard, ready: Callable[[str], None]) -> None:
    """Tell where the dashboard is."""
    await dashboard.listening.wait()
    ready(dashboard.url)


async def informers(client: Client, namespaces: Iterable[str]) -> list[Informer]:
    """What is watched: each kind everywhere, or where that is allowed."""
    allowed = await asyncio.gather(*(is_allowed(client, kind) for kind in SHOWN_KINDS))
    refused = [kind for kind, yes in zip(SHOWN_KINDS, allowed, strict=True) if not yes]
    places = await candidates(client, namespaces) if refused else []
    found: list[Informer] = []
    for kind, yes in zip(SHOWN_KINDS, allowed, strict=True):
        inside = [] if yes or not kind.namespaced else await allowed_in(client, kind, places)
        # One that may look nowhere is watched all the same: it fails, and says so on the page.
        found += [watch(client, kind, namespace) for namespace in inside or [""]]
    return found


def watch(client: Client, kind: Resource, namespace: str) -> Informer:
    if kind == WORKS:
        return work_informer(client, namespace)
    return Informer(client, kind, namespace, trim=without_managed_fields)


async def is_allowed(client: Client, kind: Resource, namespace: str = "") -> bool:
    """Whether a kind may be listed; a question that is not answered counts as a yes."""
    try:
        return await may(client, "list", kind, namespace)
    except KubeError as error:
        log.info("SelfSubjectAccessReview failed", error=str(error))
        return True


async def candidates(client: Client, namespaces: Iterable[str]) -> list[str]:
    """The namespaces in which to look: those that were named, else all, else the client's own."""
    if named := sorted(set(namespaces)):
        return named
    try:
        found = await client.list(NAMESPACES, metadata_only=True)
    except KubeError:
        return [client.namespace]
    return sorted(each["metadata"]["name"] for each in found.items)[:MOST_NAMESPACES]


async def allowed_in(client: Client, kind: Resource, places: list[str]) -> list[str]:
    """The namespaces in which a kind may be listed."""
    answers = await asyncio.gather(*(is_allowed(client, kind, each) for each in places))
    return [route for route, yes in zip(places, answers, strict=True) if yes]


class EmbeddedDashboard(Struct, frozen=True, kw_only=True):
    """What a hub with a dashboard is made of."""

    connection: Connection
    releases: Releases
    settings: HubSettings
    providers: ProviderFile | None
    web: WebSettings


async def build_hub(manager: Manager, *, inside: EmbeddedDashboard) -> None:
    """Fill a manager with a hub that has a dashboard."""
    operator = Operator(manager, inside.connection, inside.settings.operator, inside.providers)
    feed = HubFeed()
    known = known_of(inside.releases)
    sources = DetailSources(operator.client, feed, inside.providers, known, inside.releases)
    dashboard = Dashboard(inside.connection, sources, inside.web)
    await operator.start(inside.releases)
    hub = HubProcess(operator, inside.settings.hub)
    hub.start()
    manager.add(dashboard, "dashboard")
    manager.add(OneTimeTask(lambda: share(operator, hub, feed)), "dashboard's watches")


async def share(operator: Operator, hub: HubProcess, feed: HubFeed) -> None:
    """Show what the controllers watch, from when they do."""
    await operator.begun.wait()
    for controller in operator.controllers:
        feed.follow(controller.resources)
    await hub.started.wait()
    assert hub.hub_manager is not None
    feed.follow(hub.hub_manager.informers.clusters)
    feed.follow(hub.hub_manager.informers.profiles)
    feed.follow(hub.hub_manager.informers.works)
    found = addon_informers(hub.hub_manager.context)
    feed.follow(found.cluster_addons)
    feed.follow(found.addons)
