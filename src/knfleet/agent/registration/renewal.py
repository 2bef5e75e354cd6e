"""Keeps the agent's certificate young, and what the agent keeps in its place.

A certificate is renewed by the agent itself, without a person. When somebody else changes what is
kept, a usable identity is taken over, and anything else is put right again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from msgspec.structs import replace

from knfleet.agent.hub_session import HubSession
from knfleet.agent.registration.credential_store import CredentialStore, credentials_in
from knfleet.agent.registration.drivers import csr
from knfleet.agent.registration.drivers.csr import IssuedCertificate
from knfleet.agent.registration.identity import HubCredentials, certificate_problem
from knfleet.agent.registration.registration import request, wait_for_decision
from knfleet.agent.status.cluster_status import is_accepted
from knfleet.api.cluster.managedcluster import CERTIFICATE_ROTATED
from knfleet.api.conditions import StandardCondition
from knfleet.api.core import SECRETS
from knfleet.api.meta import Request
from knfleet.kube.cache.informer import Informer
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log

LOOK_SECONDS = 300.0
"""The certificate is looked at so often at least."""
ANSWER_SECONDS = 120.0
"""How long a renewal may take before it counts as failed."""


class CertificateController:
    """Renews the certificate of a seat."""

    def __init__(self, session: HubSession, store: CredentialStore) -> None:
        self.session = session
        self.store = store
        self.chance = random.random()  # noqa: S311 - not a secret
        key = store.key
        fields = f"metadata.name={key.name}"
        self.secret = Informer(store.client, SECRETS, key.namespace, fields=fields)
        self.changed: Callable[[], None] = lambda: None
        """Called when the cluster's conditions have something new to tell."""

    async def reconcile(self, _request: Request) -> Result:
        """Put right what is kept, and renew what is due."""
        await self.restore_secret()
        certificate = csr.read(self.session.identity.credentials.certificate)
        now = datetime.now(UTC)
        if certificate is None or certificate.ends <= now:
            self.session.leave("the certificate has ended")
            return Result.never()
        due = (certificate.renew_at(self.chance) - now).total_seconds()
        if due > 0:
            return Result.after(min(due, LOOK_SECONDS))
        cluster = self.session.cluster()
        if cluster is not None and is_accepted(cluster):
            await self.renew()
            return Result.now()
        return Result.after(min(LOOK_SECONDS, (certificate.ends - now).total_seconds()))

    async def restore_secret(self) -> None:
        """Take over a usable identity that somebody put in place; undo anything else."""
        if not self.secret.synced.is_set():
            return
        credentials = self.session.identity.credentials
        found = self.secret.get(self.store.key)
        kept = HubCredentials() if found is None else credentials_in(found)
        if kept == credentials:
            self.store.mirror(credentials)
        elif not certificate_problem(kept, self.session.names, datetime.now(UTC)):
            log.info("took over the certificate that was put in place", secret=str(self.store.key))
            await self.use_credentials(
                replace(credentials, key=kept.key, certificate=kept.certificate)
            )
        else:
            log.warning("put the hub kubeconfig back in place", secret=str(self.store.key))
            await self.store.save(credentials)

    async def use_credentials(self, credentials: HubCredentials) -> None:
        """Be this from now on."""
        await self.store.save(credentials)
        self.session.identity.credentials = credentials

    async def renew(self) -> None:
        """Ask for the next certificate, as who we are, and use it."""
        key = csr.new_key()
        wanted = self.session.settings.registration(self.session.names)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                name = await request(self.session.hub, wanted, key)
                answer = await self.wait_for_answer(name) if name else None
        except TimeoutError:
            answer = None
        if not isinstance(answer, IssuedCertificate):
            why = answer.why if answer else f"no answer to the request in {ANSWER_SECONDS:.0f} s"
            self.report_renewal("False", "ClientCertificateUpdateFailed", f"not renewed: {why}")
            raise RenewalFailed(why)
        credentials = replace(
            self.session.identity.credentials, key=key, certificate=answer.certificate
        )
        await self.use_credentials(credentials)
        self.chance = random.random()  # noqa: S311 - not a secret
        if (issued := csr.read(answer.certificate)) is not None:
            validity = csr.valid_for(issued)
            log.info("certificate renewed", valid=validity)
            message = f"client certificate rotated, valid {validity}"
            self.report_renewal("True", "ClientCertificateUpdated", message)

    def wait_for_answer(self, name: str) -> Awaitable[csr.IssuedCertificate | csr.RequestRefused]:
        """What became of a request."""

        def report(_reason: str, message: str) -> None:
            log.warning("the renewal is not answered", error=message)

        return wait_for_decision(
            self.session.hub, name, self.session.settings.registration(self.session.names), report
        )

    def report_renewal(self, status: str, reason: str, message: str) -> None:
        """Have the cluster's conditions tell what became of the renewal."""
        self.session.rotated = StandardCondition(
            type=CERTIFICATE_ROTATED,
            status="True" if status == "True" else "False",
            reason=reason,
            message=message,
        )
        self.changed()


class RenewalFailed(Exception):
    """The hub did not give a new certificate; the old one still serves."""
