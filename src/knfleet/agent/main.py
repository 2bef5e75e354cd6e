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
from knfleet.agent.hub_session import CertificateHolder, HubSession
from knfleet.agent.registration.bootstrap_kubeconfig import BootstrapSource, changed, readable
from knfleet.agent.registration.cluster_names import AgentNames, random_agent
from knfleet.agent.registration.cluster_registration import RegistrationRequest, ensure_cluster
from knfleet.agent.registration.credential_store import CredentialStore
from knfleet.agent.registration.drivers.driver import RequestRefused
from knfleet.agent.registration.drivers.registry import AWSIRSA, DRIVERS, driver_for, driver_of
from knfleet.agent.registration.identity import (
    Bootstrap,
    HubCredentials,
    choose_names,
    former_bootstrap,
)
from knfleet.agent.registration.registration import register
from knfleet.agent.settings import LEAST_ADDON_TOKEN_SECONDS, AgentSettings
from knfleet.agent.status.klusterlet import WAITING, HubConnectionStatus, KlusterletController
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden, KubeError, NotFound, Unauthorized
from knfleet.runtime.logs import log

CHANGE_SECONDS = 60.0
"""How long a hub may take to issue credentials of another driver."""
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
        self.auth_type = settings.auth_type
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
        await self.klusterlet.ready()
        while True:
            try:
                self.choose_driver()
                bootstrap = await readable(self.source)
                await self.unless_changed(self.join(bootstrap), bootstrap)
            except KubeError as error:
                log.warning("the cluster does not answer", error=str(error))
            await asyncio.sleep(PAUSE_SECONDS)

    def choose_driver(self) -> None:
        """Use the driver that the Klusterlet asks for, else the one of the command line."""
        self.klusterlet.driver_changed.clear()
        wanted = self.klusterlet.auth_type or self.settings.auth_type
        driver = driver_for(wanted, self.klusterlet.roles or self.settings.roles)
        if isinstance(driver, str):
            message = f"registration by {wanted} is not possible with this agent: {driver}"
            log.error("registration driver not supported", driver=wanted, why=driver)
            self.klusterlet.fail("RegistrationDriverUnsupported", message)
            return
        if wanted != self.auth_type:
            log.info("registration driver chosen", driver=wanted)
        self.auth_type, self.driver = wanted, driver

    def wanted(self, names: AgentNames) -> RegistrationRequest:
        """What the cluster is to be registered with."""
        return self.settings.registration(names, self.driver.annotations)

    async def unless_changed(self, work: Coroutine[Any, Any, None], bootstrap: Bootstrap) -> None:
        """Do something until it ends, or the way to the hub changes."""
        try:
            async with asyncio.TaskGroup() as group:
                working = group.create_task(work)
                changing = group.create_task(changed(self.source, bootstrap))
                switching = group.create_task(self.klusterlet.driver_changed.wait())
                tasks = [working, changing, switching]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if changing.done():
                    log.info("the bootstrap kubeconfig has changed")
                for each in tasks:
                    each.cancel()
        except* KubeError as group:
            raise group.exceptions[0] from None

    async def join(self, bootstrap: Bootstrap) -> None:
        """Have usable credentials, and run a session for as long as they are."""
        credentials = await self.identity()
        names = AgentNames(credentials.cluster, credentials.agent)
        problem = self.driver.problem(credentials, names, datetime.now(UTC))
        if problem and (taken := await self.change_driver(credentials, bootstrap)) is not None:
            credentials, problem = taken, ""
        there = self.driver.located(credentials, bootstrap, self.store.folder)
        if not problem and there != credentials:
            problem = await self.try_new_address(there, bootstrap)
        credentials = there
        lost, self.lost = self.lost, ""
        if not problem and lost == CERTIFICATE_REJECTED:
            problem = "the hub rejects the agent's certificate"
        if problem:
            log.info("joining", cluster=names.cluster, agent=names.agent, why=problem)
            self.klusterlet.report(replace(WAITING, message=f"Waiting to be accepted: {problem}"))
            wanted = self.wanted(names)
            made = await register(self.driver, bootstrap, wanted, self.klusterlet.fail)
            credentials = self.driver.located(made, bootstrap, self.store.folder)
            if credentials.certificate:
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

    def session_settings(self) -> AgentSettings:
        """The settings, with what the Klusterlet says of add-ons."""
        wanted = self.klusterlet.addon_driver
        tokens = wanted.auth_type == "token" if wanted.auth_type else self.settings.addon_tokens
        seconds = wanted.token.expiration_seconds or self.settings.addon_token_seconds
        return replace(
            self.settings,
            # EKS signs no certificates for clients.
            addon_tokens=tokens or self.auth_type == AWSIRSA,
            addon_token_seconds=max(seconds, LEAST_ADDON_TOKEN_SECONDS),
        )

    @asynccontextmanager
    async def session(
        self, credentials: HubCredentials, bootstrap: Bootstrap
    ) -> AsyncGenerator[HubSession]:
        """A session with the hub, whose connections are closed with it."""
        session = HubSession(
            self.session_settings(),
            credentials,
            bootstrap,
            spoke=self.spoke,
            store=self.store,
            driver=self.driver,
        )
        try:
            yield session
        finally:
            await session.hub.close()

    async def try_new_address(self, there: HubCredentials, bootstrap: Bootstrap) -> str:
        """What is wrong with the same identity at another address; empty when nothing is."""
        async with self.session(there, bootstrap) as session:
            try:
                await session.hub.get(CLUSTERS, there.cluster)
            except (Unauthorized, Forbidden, NotFound) as error:
                return (
                    f"the hub of the bootstrap kubeconfig rejects the agent's certificate: {error}"
                )
        log.info("the hub has moved", server=bootstrap.address.endpoint.server)
        return ""

    async def change_driver(
        self, credentials: HubCredentials, bootstrap: Bootstrap
    ) -> HubCredentials | None:
        """Credentials of this driver, obtained with valid ones of another; None without those.

        So a cluster changes its driver without a person, and without a token that may have expired.
        """
        former = driver_of(credentials)
        names = AgentNames(credentials.cluster, credentials.agent)
        if former is self.driver or former.problem(credentials, names, datetime.now(UTC)):
            return None
        kept = former_bootstrap(credentials, bootstrap)
        hub = former.session_client(kept, names.cluster, CertificateHolder(credentials))
        try:
            async with asyncio.timeout(CHANGE_SECONDS):
                wanted = self.wanted(names)
                answer = await self.driver.obtain(hub, wanted, self.klusterlet.fail)
        except (TimeoutError, KubeError) as error:
            log.warning("driver not changed with the former credentials", error=str(error))
            return None
        finally:
            await hub.close()
        if isinstance(answer, RequestRefused):
            log.warning("driver not changed with the former credentials", error=answer.why)
            return None
        log.info("registration driver changed", cluster=names.cluster, driver=self.auth_type)
        issued = HubCredentials(
            names.cluster, names.agent, key=answer.key, certificate=answer.certificate
        )
        return self.driver.located(issued, bootstrap, self.store.folder)

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
        wanted = self.wanted(AgentNames(credentials.cluster, credentials.agent))
        async with await self.driver.bootstrap_client(bootstrap, credentials.cluster) as hub:
            try:
                await ensure_cluster(hub, wanted)
            except KubeError as error:
                log.warning("registration not approved yet; retrying", error=str(error))
                reason = "BootstrapSecretError"
                self.klusterlet.report(HubConnectionStatus("True", reason, str(error)))
