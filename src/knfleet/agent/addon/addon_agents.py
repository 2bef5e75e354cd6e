"""Gives the agents of add-ons their credentials for the hub, renews them, and takes them away.

A Secret is written when the add-on asks for it, renewed while a fifth of its life is left, and
deleted with the add-on. Which Secrets are ours is known by a label, also after a restart.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from msgspec.structs import replace

from knfleet.agent.addon.addon_credentials import (
    SECRET_LABEL,
    WantedCredential,
    account_uid,
    certificate_content,
    content_of,
    renewal_time,
    request_manifest,
    request_pem,
    secret_manifest,
    secret_problem,
    token_content,
    token_renewal_time,
    wanted_credentials,
)
from knfleet.agent.addon.lease_health import lease_condition
from knfleet.agent.hub_session import HubSession
from knfleet.agent.registration import client_certificate
from knfleet.agent.registration.drivers.csr import decision_on
from knfleet.api.addon.managedclusteraddon import ADDONS, ManagedClusterAddOn
from knfleet.api.addon.names import (
    ADDON_LABEL,
    CERTIFICATE_ROTATED,
    KUBE_CLIENT_SIGNER,
    TOKEN_REFRESHED,
    agent_name,
)
from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL
from knfleet.api.conditions import StandardCondition, put
from knfleet.api.core import LEASES, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.schema import decode
from knfleet.api.texts import bounded
from knfleet.apply.observe.collection import Collection, follow
from knfleet.hub.addon.addon_writes import write_status
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from knfleet.runtime.controller import Controller, ControllerOptions, Result
from knfleet.runtime.logs import log
from knfleet.runtime.queue import Backoff, QueueOptions

ANSWER_SECONDS = 60.0
MOST_REQUESTS = 20
"""An add-on whose requests nobody answers does not make more than so many."""
REFUSED_SECONDS = 30.0
"""A credential that the hub did not give is asked for again after this long."""
LOOK_SECONDS = 300.0
LEASE_SECONDS = 30.0
MANAGER = "knfleet-agent-addons"
OPTIONS = ControllerOptions(queue=QueueOptions(backoff=Backoff(0.2, 60)), deadline_seconds=180)


class CredentialRefused(Exception):
    """The hub gave no credential; it is asked for again."""


class AddOnAgentController:
    """Reconciles the credentials and the health of add-ons on this cluster."""

    def __init__(self, session: HubSession) -> None:
        self.session = session
        self.home = session.store.client
        """Where hosted agents run: beside this one."""
        self.is_hosted = server_of(self.home) != server_of(session.spoke)
        """Whether that is another cluster than the managed one."""
        self.addons = Informer(
            session.hub, ADDONS, session.names.cluster, trim=without_managed_fields
        )
        self.controller = Controller("addon", self.reconcile, OPTIONS)
        self.controller.watches(self.addons.on_change, requests=by_addon)
        self.kept: dict[str, set[tuple[bool, Key]]] = {}
        """By add-on the Secrets that it has, and whether they are beside this agent."""

    async def run(self) -> None:
        """Follow the add-ons of the cluster."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.addons.run())
            await self.addons.synced.wait()
            await self.find_secrets()
            await self.controller.run()

    async def find_secrets(self) -> None:
        """Learn which Secrets an earlier run wrote, and see to those whose add-on is gone."""
        for hosted in (False, True) if self.is_hosted else (False,):
            client = self.client(hosted=hosted)
            try:
                found = await client.list(SECRETS, labels=SECRET_LABEL, metadata_only=True)
            except KubeError as error:
                log.warning("credentials of add-ons cannot be listed", error=str(error))
                continue
            for each in found.items:
                addon = each["metadata"]["labels"][SECRET_LABEL]
                self.kept.setdefault(addon, set()).add((hosted, Key.of(each)))
                self.controller.queue.add(self.request(addon))

    def request(self, addon: str) -> Request:
        """The request to look at an add-on."""
        return Request(HUB, Key(self.session.names.cluster, addon))

    def client(self, *, hosted: bool) -> Client:
        """The cluster that an add-on's agent runs on."""
        return self.home if hosted else self.session.spoke

    async def reconcile(self, request: Request) -> Result:
        """See to one add-on."""
        manifest = self.addons.get(request.key)
        name = request.key.name
        if manifest is None:
            await self.forget(name, keep=set())
            return Result.never()
        addon = decode(manifest, ManagedClusterAddOn)
        try:
            return await self.update(addon)
        except Conflict:
            return Result.after(0.1)

    async def update(self, addon: ManagedClusterAddOn) -> Result:
        """Have an add-on's Secrets there, and report how it is."""
        tokens = self.session.settings.addon_tokens
        conditions = addon.status.conditions
        driver = addon.status.kube_client_driver
        wanted = [
            each if self.is_hosted else replace(each, hosted=False)
            for each in wanted_credentials(addon, self.session.names.agent, tokens=tokens)
        ]
        looks = [LOOK_SECONDS]
        for each in wanted:
            try:
                seconds, said = await self.ensure(addon, each)
            except CredentialRefused as error:
                seconds, said = REFUSED_SECONDS, refused(str(error))
                log.warning("add-on has no credentials", addon=addon.name, error=str(error))
            looks.append(seconds)
            if said is not None:
                conditions = put(conditions, said, datetime.now(UTC))
        await self.forget(addon.name, keep={(each.hosted, each.secret) for each in wanted})
        if addon.status.health_check is None or addon.status.health_check.mode == "Lease":
            conditions = put(conditions, await self.health(addon), datetime.now(UTC))
            looks.append(LEASE_SECONDS)
        status = replace(addon.status, conditions=list(conditions))
        if not addon.metadata.deleting:
            if any(each.is_kube_client for each in wanted) and (tokens or driver == "token"):
                status = replace(
                    status,
                    kube_client_driver="token" if tokens else "csr",
                    registrations=self.token_subjects(addon, tokens=tokens),
                )
            await write_status(self.session.hub, addon, status)
        return Result.after(min(looks))

    def token_subjects(self, addon: ManagedClusterAddOn, *, tokens: bool) -> list[object]:
        """The registrations with the identity that tokens have."""
        user = f"system:serviceaccount:{addon.cluster}:{agent_name(addon.name)}"
        return [
            replace(each, subject=replace(each.subject, user=user, groups=[]))
            if tokens and each.signer_name == KUBE_CLIENT_SIGNER
            else each
            for each in addon.status.registrations
        ]

    async def ensure(
        self, addon: ManagedClusterAddOn, wanted: WantedCredential
    ) -> tuple[float, StandardCondition | None]:
        """Have one Secret there; when to look again, and what became of it."""
        if problem := secret_problem(wanted):
            raise CredentialRefused(problem)
        client = self.client(hosted=wanted.hosted)
        try:
            found = await client.get(SECRETS, wanted.secret.name, wanted.secret.namespace)
        except NotFound:
            found = None
        content, now = content_of(found), datetime.now(UTC)
        address = self.session.address
        uid = account_uid(addon)
        due = (
            token_renewal_time(wanted, address, content, uid)
            if wanted.uses_token
            else renewal_time(wanted, address, content, now)
        )
        if due is not None and due > now:
            self.kept.setdefault(wanted.addon, set()).add((wanted.hosted, wanted.secret))
            # Also for one that is kept: the status may not have been written when it was made.
            return max((due - now).total_seconds(), 1.0), issued(wanted, content)
        if addon.metadata.deleting:
            return LOOK_SECONDS, None
        if wanted.uses_token:
            if not uid:
                # The hub makes the account when it knows that we want tokens.
                return LOOK_SECONDS, None
            content = token_content(wanted, address, await self.token(wanted))
        else:
            key = client_certificate.new_key()
            certificate = await self.certificate(wanted, key)
            content = certificate_content(wanted, address, key, certificate)
        await self.write(client, wanted, secret_manifest(wanted, content))
        log.info("wrote credentials of an add-on", addon=wanted.addon, secret=str(wanted.secret))
        return 1.0, issued(wanted, content)

    async def write(self, client: Client, wanted: WantedCredential, secret: Object) -> None:
        """Write a Secret, and its namespace before that if need be."""
        try:
            await client.apply(SECRETS, secret, manager=MANAGER)
        except NotFound:
            meta = {"name": wanted.secret.namespace}
            with suppress(AlreadyExists):
                await client.create(
                    NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
                )
            await client.apply(SECRETS, secret, manager=MANAGER)
        self.kept.setdefault(wanted.addon, set()).add((wanted.hosted, wanted.secret))

    async def certificate(self, wanted: WantedCredential, key: bytes) -> bytes:
        """A certificate from the hub; raises `CredentialRefused`."""
        labels = f"{CLUSTER_NAME_LABEL}={wanted.cluster},{ADDON_LABEL}={wanted.addon}"
        existing = await self.session.hub.list(CSRS, labels=labels, metadata_only=True)
        if len(existing.items) >= MOST_REQUESTS:
            raise CredentialRefused(
                f"add-on {wanted.addon} has {len(existing.items)} certificate requests; delete old"
                " ones, or wait until the hub does"
            )
        manifest = request_manifest(request_pem(key, wanted), wanted)
        made = await self.session.hub.create(CSRS, manifest)
        name = made["metadata"]["name"]
        key_of = Key("", name)

        def is_decided(seen: Mapping[Key, Object]) -> bool:
            return key_of in seen and decision_on(seen[key_of]) is not None

        collection = Collection(CSRS, fields=f"metadata.name={name}")
        found = await follow(self.session.hub, collection, is_decided, seconds=ANSWER_SECONDS)
        decision = decision_on(found[key_of]) if key_of in found else None
        if isinstance(decision, bytes):
            return decision
        why = decision.why if decision else f"no answer in {ANSWER_SECONDS:.0f} s"
        raise CredentialRefused(f"certificate request {name} of add-on {wanted.addon}: {why}")

    async def token(self, wanted: WantedCredential) -> str:
        """A token of the add-on's account on the hub."""
        body: Object = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": self.session.settings.addon_token_seconds},
        }
        answer = await self.session.hub.create(
            SERVICE_ACCOUNTS,
            body,
            wanted.cluster,
            name=agent_name(wanted.addon),
            subresource="token",
        )
        return str(answer["status"]["token"])

    async def health(self, addon: ManagedClusterAddOn) -> StandardCondition:
        """How an add-on is by its Lease."""
        client = self.client(hosted=self.is_hosted and bool(addon.hosting_cluster))
        namespace = addon.status.namespace or addon.spec.install_namespace
        try:
            lease = await client.get(LEASES, addon.name, namespace)
        except NotFound:
            lease = None
        return lease_condition(addon.name, lease, datetime.now(UTC))

    async def forget(self, addon: str, *, keep: set[tuple[bool, Key]]) -> None:
        """Delete the Secrets that an add-on no longer needs."""
        for hosted, key in self.kept.get(addon, set()) - keep:
            with suppress(NotFound):
                await self.client(hosted=hosted).delete(SECRETS, key)
            log.info("deleted credentials of an add-on", addon=addon, secret=str(key))
        self.kept[addon] = self.kept.get(addon, set()) & keep
        if not self.kept[addon]:
            del self.kept[addon]


def server_of(client: Client) -> str:
    """The address of a client's API server."""
    return client.transport.endpoint.server


def by_addon(change: StoreChange) -> Iterable[Request]:
    """An add-on changed."""
    yield Request(HUB, change.key)


def issued(wanted: WantedCredential, content: Mapping[str, bytes]) -> StandardCondition:
    """What is reported of a credential that an add-on's agent has."""
    if wanted.uses_token:
        return condition(TOKEN_REFRESHED, "TokenRefreshed", "token refreshed")
    certificate = client_certificate.read(content.get("tls.crt", b""))
    validity = f", valid {client_certificate.valid_for(certificate)}" if certificate else ""
    text = f"client certificate rotated{validity}"
    return condition(CERTIFICATE_ROTATED, "ClientCertificateUpdated", text)


def refused(problem: str) -> StandardCondition:
    """What is reported of a certificate that the hub did not give."""
    failed = condition(CERTIFICATE_ROTATED, "ClientCertificateUpdateFailed", bounded(problem))
    return replace(failed, status="False")


def condition(type_: str, reason: str, message: str) -> StandardCondition:
    """A condition that holds."""
    return StandardCondition(type=type_, status="True", reason=reason, message=message)
