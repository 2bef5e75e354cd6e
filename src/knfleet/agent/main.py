"""The agent as a process: from a bootstrap kubeconfig to a cluster that sends heartbeats.

    no credentials, or unusable ones → register, wait for a person on the hub
    credentials, and the hub where it was → run a session
    credentials, and the hub elsewhere → try them there first, and register if it is another hub

Whatever ends a state leads back to the beginning, where everything is checked again; so a restart
at any moment loses nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from knfleet.agent.controllers import (
    CERTIFICATE_REJECTED,
    SessionControllers,
    wait_for_acceptance,
)
from knfleet.agent.hub_session import HubSession
from knfleet.agent.registration.bootstrap_kubeconfig import BootstrapSource, changed, readable
from knfleet.agent.registration.cluster_names import AgentNames, random_agent
from knfleet.agent.registration.cluster_registration import ensure_cluster
from knfleet.agent.registration.credential_store import CredentialStore
from knfleet.agent.registration.drivers.registry import DRIVERS
from knfleet.agent.registration.identity import (
    Bootstrap,
    HubCredentials,
    choose_names,
    hub_kubeconfig,
    is_moved,
)
from knfleet.agent.registration.registration import register
from knfleet.agent.settings import AgentSettings
from knfleet.agent.status.klusterlet import WAITING, HubConnectionStatus, KlusterletController
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.errors import Forbidden, KubeError, NotFound, Unauthorized
from knfleet.runtime.logs import log

PAUSE_SECONDS = 1.0
"""Between two states, so that no failure is retried in a tight loop."""


class Agent:
    """The state machine."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        spoke: Client,
        store: CredentialStore,
        source: BootstrapSource,
        klusterlet: KlusterletController,
    ) -> None:
        self.settings = settings
        self.driver = DRIVERS[settings.auth_type]
        self.spoke = spoke
        self.store = store
        self.source = source
        self.klusterlet = klusterlet
        self.fallback = AgentNames("", random_agent())
        self.lost = ""
        """Why the last session ended."""

    async def run(self) -> None:
        """Go from state to state until cancelled."""
        while True:
            try:
                bootstrap = await readable(self.source)
                await self.unless_changed(self.join(bootstrap), bootstrap)
            except KubeError as error:
                log.warning("the cluster does not answer", error=str(error))
            await asyncio.sleep(PAUSE_SECONDS)

    async def unless_changed(self, work: Coroutine[Any, Any, None], bootstrap: Bootstrap) -> None:
        """Do something until it ends or the bootstrap kubeconfig changes."""
        try:
            async with asyncio.TaskGroup() as group:
                working = group.create_task(work)
                changing = group.create_task(changed(self.source, bootstrap))
                await asyncio.wait([working, changing], return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    log.info("the bootstrap kubeconfig has changed")
                working.cancel()
                changing.cancel()
        except* KubeError as group:
            raise group.exceptions[0] from None

    async def join(self, bootstrap: Bootstrap) -> None:
        """Have usable credentials, and run a session for as long as they are."""
        credentials = await self.identity()
        names = AgentNames(credentials.cluster, credentials.agent)
        problem = self.driver.problem(credentials, names, datetime.now(UTC))
        if not problem and is_moved(credentials, bootstrap.address):
            credentials, problem = await self.try_new_address(credentials, bootstrap)
        lost, self.lost = self.lost, ""
        if not problem and lost == CERTIFICATE_REJECTED:
            problem = "the hub does not know our certificate"
        if problem:
            log.info("joining", cluster=names.cluster, agent=names.agent, why=problem)
            self.klusterlet.report(replace(WAITING, message=f"Waiting to be accepted: {problem}"))
            wanted = self.settings.registration(names)
            credentials = await register(self.driver, bootstrap, wanted, self.klusterlet.fail)
            log.info("got a certificate", cluster=names.cluster, user=names.user)
        await self.store.save(credentials)
        self.lost = await self.run_session(credentials, bootstrap)

    async def identity(self) -> HubCredentials:
        """What is kept, with names; new names are kept at once, so that a restart knows them."""
        kept = await self.store.load()
        names = choose_names(self.settings.asked, kept, self.fallback)
        credentials = replace(kept, cluster=names.cluster, agent=names.agent)
        if credentials != kept:
            await self.store.save(credentials)
        return credentials

    @asynccontextmanager
    async def session(
        self, credentials: HubCredentials, bootstrap: Bootstrap
    ) -> AsyncGenerator[HubSession]:
        """A session with the hub, whose connections are closed with it."""
        session = HubSession(
            self.settings,
            credentials,
            bootstrap.address,
            spoke=self.spoke,
            store=self.store,
            driver=self.driver,
        )
        try:
            yield session
        finally:
            await session.hub.close()

    async def try_new_address(
        self, credentials: HubCredentials, bootstrap: Bootstrap
    ) -> tuple[HubCredentials, str]:
        """The same identity at another address, and what is wrong with it there."""
        there = replace(credentials, kubeconfig=hub_kubeconfig(bootstrap.address))
        async with self.session(there, bootstrap) as session:
            try:
                await session.hub.get(CLUSTERS, credentials.cluster)
            except (Unauthorized, Forbidden, NotFound) as error:
                return (
                    there,
                    f"the hub that the bootstrap kubeconfig names does not know us: {error}",
                )
        log.info("the hub has moved", server=bootstrap.address.endpoint.server)
        return there, ""

    async def run_session(self, credentials: HubCredentials, bootstrap: Bootstrap) -> str:
        """Run a session with the hub to its end; why it ended."""
        async with self.session(credentials, bootstrap) as session:
            why = await wait_for_acceptance(session)
            if not why:
                why = await SessionControllers(session, self.klusterlet.report).run()
                log.warning("session with the hub ended", why=why)
            elif why != CERTIFICATE_REJECTED:
                self.klusterlet.report(WAITING)
                await self.remind(bootstrap, credentials)
        return why

    async def remind(self, bootstrap: Bootstrap, credentials: HubCredentials) -> None:
        """Create the ManagedCluster again, should it have been deleted."""
        wanted = self.settings.registration(AgentNames(credentials.cluster, credentials.agent))
        async with Client(bootstrap.connection, ClientOptions(attempts=1, concurrency=4)) as hub:
            try:
                await ensure_cluster(hub, wanted)
            except KubeError as error:
                log.warning("registration not approved yet; retrying", error=str(error))
                reason = "BootstrapSecretError"
                self.klusterlet.report(HubConnectionStatus("True", reason, str(error)))
