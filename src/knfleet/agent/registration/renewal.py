"""Keeps the agent's certificate young, and what the agent keeps in its place.

A certificate is renewed by the agent itself, without a person. When somebody else changes what is
kept, a usable identity is taken over, and anything else is put right again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from msgspec.structs import replace

from knfleet.agent.hub_session import Seat
from knfleet.agent.registration.credential_store import Keeper, held_in
from knfleet.agent.registration.drivers import csr
from knfleet.agent.registration.drivers.csr import Issued
from knfleet.agent.registration.identity import Held, certificate_problem
from knfleet.agent.registration.registration import answered, request
from knfleet.agent.status.cluster_status import is_accepted
from knfleet.api.cluster.managedcluster import CERTIFICATE_ROTATED
from knfleet.api.conditions import StandardCondition
from knfleet.api.core import SECRETS
from knfleet.api.meta import Request
from knfleet.kube.cache.informer import Informer
from knfleet.runtime.controller import Again
from knfleet.runtime.logs import log

LOOK_SECONDS = 300.0
"""The certificate is looked at so often at least."""
ANSWER_SECONDS = 120.0
"""How long a renewal may take before it counts as failed."""


class Renewal:
    """Renews the certificate of a seat."""

    def __init__(self, seat: Seat, keeper: Keeper) -> None:
        self.seat = seat
        self.keeper = keeper
        self.chance = random.random()  # noqa: S311 - not a secret
        key = keeper.key
        fields = f"metadata.name={key.name}"
        self.secret = Informer(keeper.client, SECRETS, key.namespace, fields=fields)
        self.changed: Callable[[], None] = lambda: None
        """Called when the cluster's conditions have something new to tell."""

    async def reconcile(self, _request: Request) -> Again:
        """Put right what is kept, and renew what is due."""
        await self.put_right()
        certificate = csr.read(self.seat.identity.held.certificate)
        now = datetime.now(UTC)
        if certificate is None or certificate.ends <= now:
            self.seat.leave("the certificate has ended")
            return Again.never()
        due = (certificate.renew_at(self.chance) - now).total_seconds()
        if due > 0:
            return Again.after(min(due, LOOK_SECONDS))
        cluster = self.seat.cluster()
        if cluster is not None and is_accepted(cluster):
            await self.renew()
            return Again.now()
        return Again.after(min(LOOK_SECONDS, (certificate.ends - now).total_seconds()))

    async def put_right(self) -> None:
        """Take over a usable identity that somebody put in place; undo anything else."""
        if not self.secret.synced.is_set():
            return
        held = self.seat.identity.held
        found = self.secret.get(self.keeper.key)
        kept = Held() if found is None else held_in(found)
        if kept == held:
            self.keeper.mirror(held)
        elif not certificate_problem(kept, self.seat.names, datetime.now(UTC)):
            log.info("took over the certificate that was put in place", secret=str(self.keeper.key))
            await self.hold(replace(held, key=kept.key, certificate=kept.certificate))
        else:
            log.warning("put the hub kubeconfig back in place", secret=str(self.keeper.key))
            await self.keeper.save(held)

    async def hold(self, held: Held) -> None:
        """Be this from now on."""
        await self.keeper.save(held)
        self.seat.identity.held = held

    async def renew(self) -> None:
        """Ask for the next certificate, as who we are, and use it."""
        key = csr.new_key()
        wanted = self.seat.settings.registration(self.seat.names)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                name = await request(self.seat.hub, wanted, key)
                answer = await self.answer(name) if name else None
        except TimeoutError:
            answer = None
        if not isinstance(answer, Issued):
            why = answer.why if answer else f"no answer to the request in {ANSWER_SECONDS:.0f} s"
            self.tell("False", "ClientCertificateUpdateFailed", f"not renewed: {why}")
            raise RenewalFailed(why)
        held = replace(self.seat.identity.held, key=key, certificate=answer.certificate)
        await self.hold(held)
        self.chance = random.random()  # noqa: S311 - not a secret
        if (issued := csr.read(answer.certificate)) is not None:
            validity = csr.valid_for(issued)
            log.info("certificate renewed", valid=validity)
            message = f"client certificate rotated, valid {validity}"
            self.tell("True", "ClientCertificateUpdated", message)

    def answer(self, name: str) -> Awaitable[csr.Issued | csr.Refused]:
        """What became of a request."""

        def say(_reason: str, message: str) -> None:
            log.warning("the renewal is not answered", error=message)

        return answered(self.seat.hub, name, self.seat.settings.registration(self.seat.names), say)

    def tell(self, status: str, reason: str, message: str) -> None:
        """Have the cluster's conditions tell what became of the renewal."""
        self.seat.rotated = StandardCondition(
            type=CERTIFICATE_ROTATED,
            status="True" if status == "True" else "False",
            reason=reason,
            message=message,
        )
        self.changed()


class RenewalFailed(Exception):
    """The hub did not give a new certificate; the old one still serves."""
