"""What is known of one installation beside the fleet: its Events, and its failing link opened.

Events are read with the viewer's own rights. What is on a target is read with the process's, for
those who may `get` the virtual subresource `objects` of the custom resource: the hub's RBAC has no
word for objects on other clusters, and this is the word for them.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from knfleet.api.core import EVENTS
from knfleet.api.meta import Key, Object, Resource
from knfleet.clusters.provider_file import ProviderFile
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden, KubeError
from knfleet.operator.kinds import profile_of, uid_of
from knfleet.release.releases import Releases
from knfleet.view.chain import Chain, chain_of, opened
from knfleet.view.fleet_model import ClusterRow, FleetView
from knfleet.view.target_access import target_of
from knfleet.web.live.feed import HubFeed
from knfleet.web.pages.history import happenings
from knfleet.web.pages.version_matrix import Known, known_in, next_steps
from knfleet.web.pages.views import InstallDetail
from knfleet.web.server.authorization import may
from knfleet.web.server.sessions import WebSession

OBJECTS = "objects"
"""The virtual subresource whose `get` lets people see what is installed on a target."""
LOOK_SECONDS = 4.0
"""How long a page waits for a target."""


class DetailSources(Struct, frozen=True):
    """Where everything comes from."""

    hub: Client
    """The process's own client."""
    feed: HubFeed
    providers: ProviderFile | None = None
    known: Known | None = None
    """Releases that can be installed, by kind; without them those count that the fleet has."""
    releases: Releases | None = None
    """The release files, if there are any at hand."""

    def installable(self, fleet: FleetView) -> Known:
        """Releases that can be installed; without release files, those that a fleet has."""
        return known_in(fleet) if self.known is None else self.known

    @asynccontextmanager
    async def target(self, manifest: Object) -> AsyncGenerator[Client]:
        """The cluster that a custom resource installs on."""
        async with target_of(self.hub, manifest, self.providers, even_unhealthy=True) as client:
            yield client


class DetailView:
    """Keeps what is known of one installation, for one viewer."""

    def __init__(
        self, sources: DetailSources, session: WebSession, resource: Resource, key: Key
    ) -> None:
        self.sources = sources
        self.session = session
        self.resource = resource
        self.key = key
        self.events: list[Object] = []
        self.events_note = ""
        self.target_note = ""
        self.chain: Chain | None = None
        """The chain as it was when it was last opened."""
        self.opened_for = ""
        self.wake = asyncio.Event()
        self.rights: tuple[bool, bool] | None = None
        """Whether the viewer may see Events, and what is on the target."""

    @property
    def manifest(self) -> Object | None:
        """The custom resource, if its viewer sees it."""
        if not self.session.visible.sees(self.resource, self.key.namespace):
            return None
        return self.sources.feed.find(self.resource, self.key)

    def about(self) -> InstallDetail | None:
        """All that is known now; None when there is no such installation for this viewer."""
        manifest = self.manifest
        if manifest is None:
            return None
        chain = self.current(manifest)
        if chain.failing is not None and self.opened_for != state_of(manifest):
            self.wake.set()
        steps = ()
        if chain.install.installed and not chain.install.deleting:
            fleet = self.sources.feed.fleet(self.session.visible)
            known = self.sources.installable(fleet).get(self.resource.kind, ())
            steps = tuple(next_steps(chain.install.installed, known, self.resource.kind))
        return InstallDetail(
            manifest,
            chain,
            tuple(happenings(self.events)),
            self.events_note,
            self.target_note if chain.failing is not None else "",
            steps,
        )

    def current(self, manifest: Object) -> Chain:
        """The chain as it is, with what was found on the target if that is of the same state."""
        if self.chain is not None and self.opened_for == state_of(manifest):
            return self.chain
        return chain_of(with_kind(manifest, self.resource), self.cluster(manifest))

    def cluster(self, manifest: Object) -> ClusterRow | None:
        """The row of the cluster that the custom resource installs on."""
        profile = profile_of(manifest)
        if profile is None:
            return None
        clusters = self.sources.feed.fleet(self.session.visible).clusters
        return next((each for each in clusters if str(profile) in each.profiles), None)

    async def refresh(self) -> None:
        """Read everything once, for a page that is being loaded."""
        manifest = self.manifest
        if manifest is None:
            return
        await asyncio.gather(self.read_events(manifest), self.open(manifest))

    async def read_events(self, manifest: Object) -> None:
        """Read the Events, as the viewer."""
        try:
            found = await self.session.client.list(
                EVENTS, self.key.namespace, fields=about_fields(manifest), deadline=LOOK_SECONDS
            )
        except KubeError as error:
            self.events_note = self.problem(error)
        else:
            self.events = found.items

    def problem(self, error: KubeError) -> str:
        """Why there are no Events."""
        if isinstance(error, Forbidden):
            self.session.doubt()
            return f"You may not list events in {self.key.namespace}."
        return f"Events cannot be read: {error}."

    async def open(self, manifest: Object) -> None:
        """Open the failing link on the target, if there is one and the viewer may see it."""
        state = state_of(manifest)
        chain = chain_of(with_kind(manifest, self.resource), self.cluster(manifest))
        note = ""
        if chain.failing is not None and chain.failing.name in ("objects", "readiness"):
            chain, note = await self.opened(chain, manifest)
        self.chain, self.opened_for, self.target_note = chain, state, note

    async def opened(self, chain: Chain, manifest: Object) -> tuple[Chain, str]:
        """The chain with its failing link opened, or why it could not be."""
        try:
            if problem := await self.not_allowed():
                return chain, problem
            async with asyncio.timeout(LOOK_SECONDS), self.sources.target(manifest) as client:
                return await opened(chain, client), ""
        except TimeoutError:
            return chain, f"{chain.install.target} does not answer within {LOOK_SECONDS:g} s."
        except KubeError as error:
            return chain, str(error)

    async def may_go_on(self) -> bool:
        """Whether the viewer has the same rights as when this was last asked."""
        client, route, before = self.session.client, self.key.namespace, self.rights
        self.rights = await asyncio.gather(
            may(client, "list", EVENTS, route),
            may(client, "get", self.resource, route, subresource=OBJECTS),
        )
        return before in (None, self.rights)

    async def not_allowed(self) -> str:
        """Why the viewer may not see what is on the target; empty when they may."""
        if self.session.is_owner:
            return ""
        client, route = self.session.client, self.key.namespace
        if await may(client, "get", self.resource, route, subresource=OBJECTS):
            return ""
        return f"To see what is on the target takes the right to get {self.resource}/{OBJECTS}."

    async def follow(self) -> None:
        """Keep everything current until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.follow_events())
            group.create_task(self.follow_state())

    async def follow_events(self) -> None:
        """Watch the Events, as the viewer."""
        manifest = self.manifest
        if manifest is None:
            return
        informer = Informer(
            self.session.client,
            EVENTS,
            self.key.namespace,
            fields=about_fields(manifest),
            trim=without_managed_fields,
        )

        def take(_change: StoreChange) -> None:
            self.events, self.events_note = informer.items(), ""
            self.sources.feed.burst()

        informer.on_change(take)
        await informer.run()

    async def follow_state(self) -> None:
        """Open the failing link again whenever the custom resource tells something new."""
        while True:
            await self.wake.wait()
            self.wake.clear()
            if (manifest := self.manifest) is not None:
                await self.open(manifest)
                self.sources.feed.burst()


def about_fields(manifest: Object) -> str:
    """The field selector of an object's Events."""
    return f"involvedObject.uid={uid_of(manifest)}"


def state_of(manifest: Object) -> str:
    """What tells two states of an object apart."""
    return str(manifest["metadata"].get("resourceVersion", ""))


def with_kind(manifest: Object, resource: Resource) -> Object:
    """A manifest that says what it is; items of lists do not."""
    if "kind" in manifest:
        return manifest
    return {**manifest, "apiVersion": resource.api_version, "kind": resource.kind}
