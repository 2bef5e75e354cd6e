"""Renews the agent's credentials, and keeps the Secret that holds them correct.

Credentials are renewed by the agent itself, without a person. When another client changes the
Secret, usable credentials in it are taken over, and anything else is undone.
"""

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from knfleet.agent.agent_controller import AgentController, Wake
from knfleet.agent.hub_session import HubSession
from knfleet.agent.registration.credential_store import credentials_in
from knfleet.agent.registration.drivers.driver import IssuedCertificate
from knfleet.agent.registration.identity import HubCredentials
from knfleet.agent.status.cluster_status import is_accepted, relevant_state
from knfleet.api.cluster.managedcluster import CERTIFICATE_ROTATED
from knfleet.api.conditions import StandardCondition
from knfleet.api.core import SECRETS
from knfleet.api.knative.conditions import Status
from knfleet.api.meta import Request
from knfleet.api.operator import BOOTSTRAP_SECRET, HUB_SECRET
from knfleet.api.rbac_rules import READ, rule
from knfleet.kube.cache.informer import Informer
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log
from knfleet.runtime.manager import Component

CHECK_SECONDS = 300.0
"""Credentials are checked so often at least."""
ANSWER_SECONDS = 120.0
"""How long a renewal may take before it counts as failed."""


class RenewalFailed(Exception):
    """The hub did not issue new credentials; the old ones still serve."""


class CredentialController:
    """Renews the credentials of a session."""

    def __init__(self, session: HubSession) -> None:
        self.session = session
        self.driver = session.driver
        self.store = session.store
        self.chance = random.random()  # noqa: S311 - not a secret
        key = self.store.key
        fields = f"metadata.name={key.name}"
        self.secret = Informer(self.store.client, SECRETS, key.namespace, fields=fields)

    def watch(self, wake: Wake) -> Sequence[Component]:
        """The Secret that holds the credentials, and whether the cluster is accepted."""
        if self.driver.validity(self.credentials):
            self.report("True", "ClientCertificateUpdated", self.rotated(self.credentials))
        self.session.on_cluster(wake, relevant_state)
        self.secret.on_change(lambda _: wake())
        return [self.secret]

    @property
    def credentials(self) -> HubCredentials:
        return self.session.identity.credentials

    async def reconcile(self, _request: Request) -> Result:
        """Correct the Secret, and renew the credentials if that is due."""
        await self.restore_secret()
        now = datetime.now(UTC)
        ends = self.driver.expires(self.credentials)
        renew_at = self.driver.renew_at(self.credentials, self.chance)
        if ends is None or renew_at is None or ends <= now:
            self.session.end("the certificate has ended")
            return Result.never()
        due = (renew_at - now).total_seconds()
        if due > 0:
            return Result.after(min(due, CHECK_SECONDS))
        cluster = self.session.cluster()
        if cluster is not None and is_accepted(cluster):
            await self.renew()
            return Result.now()
        return Result.after(min(CHECK_SECONDS, (ends - now).total_seconds()))

    async def restore_secret(self) -> None:
        """Take over usable credentials that another client put there; undo anything else."""
        if not self.secret.synced.is_set():
            return
        found = self.secret.get(self.store.key)
        stored = HubCredentials() if found is None else credentials_in(found)
        secret = str(self.store.key)
        if stored == self.credentials:
            self.store.mirror(stored)
        elif not self.driver.problem(stored, self.session.names, datetime.now(UTC)):
            log.info("took over credentials from the Secret", secret=secret)
            await self.use(
                replace(self.credentials, key=stored.key, certificate=stored.certificate)
            )
        else:
            log.warning("restored the hub kubeconfig Secret", secret=secret)
            await self.store.save(self.credentials)

    async def use(self, credentials: HubCredentials) -> None:
        """Store credentials, and use them from now on."""
        await self.store.save(credentials)
        self.session.identity.credentials = credentials

    async def renew(self) -> None:
        """Obtain the next credentials with the current ones, and use them."""
        answer = None
        wanted = self.session.settings.registration(self.session.names, self.driver.annotations)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self.driver.obtain(self.session.hub, wanted, log_failure)
        except TimeoutError:
            pass
        if not isinstance(answer, IssuedCertificate):
            why = answer.why if answer else f"no answer to the request in {ANSWER_SECONDS:.0f} s"
            self.report("False", "ClientCertificateUpdateFailed", f"not renewed: {why}")
            raise RenewalFailed(why)
        await self.use(replace(self.credentials, key=answer.key, certificate=answer.certificate))
        self.chance = random.random()  # noqa: S311 - not a secret
        log.info("certificate renewed", valid=self.driver.validity(self.credentials))
        self.report("True", "ClientCertificateUpdated", self.rotated(self.credentials))

    def rotated(self, credentials: HubCredentials) -> str:
        """How long credentials are valid, for the cluster's condition."""
        return f"client certificate rotated, valid {self.driver.validity(credentials)}"

    def report(self, status: Status, reason: str, message: str) -> None:
        """Set the cluster's condition about its certificate."""
        self.session.set_condition(
            StandardCondition(
                type=CERTIFICATE_ROTATED, status=status, reason=reason, message=message
            )
        )


def log_failure(_reason: str, message: str) -> None:
    """Log that a renewal is not answered."""
    log.warning("the renewal is not answered", error=message)


CONTROLLER = AgentController(
    "certificate",
    CredentialController,
    home_rules=(
        rule("", ["secrets"], ["create"]),
        rule("", ["secrets"], [*READ, "update", "patch"], [HUB_SECRET, BOOTSTRAP_SECRET]),
    ),
)
