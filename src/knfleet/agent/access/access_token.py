"""Hands the hub a short-lived token for the cluster, so that ClusterProfiles are of use.

The token is that of a ServiceAccount with no more rights than installing Knative takes. It is
minted anew long before it ends, and put back at once when it disappears from the hub.
"""

import base64
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from knfleet.agent.agent_controller import AgentController, Wake
from knfleet.agent.hub_session import HubSession
from knfleet.agent.status.cluster_status import is_accepted, relevant_state
from knfleet.agent.tunnel.server_name import tunnel_server
from knfleet.api.cluster.access import ACCESS_ACCOUNT, ACCESS_SECRET
from knfleet.api.cluster.tunnel import TUNNEL_MODE, TUNNEL_SERVER
from knfleet.api.core import SECRETS, SERVICE_ACCOUNTS
from knfleet.api.meta import Key, Object, Request
from knfleet.api.rbac_rules import rule
from knfleet.apply.manifest_fields import part
from knfleet.kube.cache.informer import Informer
from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import Forbidden, NotFound
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log
from knfleet.runtime.manager import Component

USED = 0.75
"""The part of a token's life after which it is replaced; the hub asks for less than 0.8."""
TUNNEL_SECONDS = 2.0
"""When to look again by which name the API server is verified."""
FOREIGN_SECONDS = 300.0
"""How often to look whether a hub without such a Secret has one now."""


class AccessToken(Struct, frozen=True):
    """A token for the cluster; never printed."""

    text: str
    begins: datetime
    ends: datetime

    def renew_at(self) -> datetime:
        """When to replace it."""
        return self.begins + (self.ends - self.begins) * USED

    def __repr__(self) -> str:
        return f"AccessToken(until {self.ends})"


class AccessTokenController:
    """Keeps the Secret on the hub filled."""

    def __init__(self, session: HubSession) -> None:
        self.session = session
        self.token: AccessToken | None = None
        fields = f"metadata.name={ACCESS_SECRET}"
        self.secret = Informer(session.hub, SECRETS, session.names.cluster, fields=fields)
        self.logged = ""
        self.tunnel_server = ""
        """The URL of the API server at the other end of the tunnel."""

    def watch(self, wake: Wake) -> Sequence[Component]:
        """The Secret on the hub, and whether the cluster is accepted."""
        self.session.on_cluster(wake, relevant_state)
        self.secret.on_change(lambda _: wake())
        return [self.secret]

    async def reconcile(self, _request: Request) -> Result:
        """Have the hub hold a token that is good for a while."""
        cluster = self.session.cluster()
        if not self.session.settings.hands_over or cluster is None or not is_accepted(cluster):
            return Result.never()
        token = await self.current()
        wanted = content(token, self.session.settings.spoke)
        if self.session.settings.tunnel != "never":
            reached = await self.tunnel_content()
            if self.session.settings.tunnel == "always":
                if not reached:
                    return Result.after(TUNNEL_SECONDS)
                # The hub gets no other address, which others could read there.
                wanted = {**without_address(wanted), "server": reached[TUNNEL_SERVER]}
            wanted |= reached
        key = Key(self.session.names.cluster, ACCESS_SECRET)
        found = self.secret.get(key)
        if found is None or part(found, "data") != wanted:
            try:
                await self.session.hub.patch(SECRETS, key, {"data": over(found, wanted)})
            except (NotFound, Forbidden) as error:
                self.log_once("the hub takes no token for this cluster", str(error))
                return Result.after(FOREIGN_SECONDS if self.secret.failing else 2.0)
            self.log_once("handed over access", "")
        return Result.after((token.renew_at() - datetime.now(UTC)).total_seconds())

    async def tunnel_content(self) -> dict[str, str]:
        """What the hub needs to know to reach the cluster through the tunnel, in base64."""
        if not self.tunnel_server:
            try:
                self.tunnel_server = await tunnel_server(self.session.spoke.transport.endpoint)
            except (OSError, TimeoutError):
                return {}
        parts = {TUNNEL_MODE: self.session.settings.tunnel, TUNNEL_SERVER: self.tunnel_server}
        return {name: base64.b64encode(part.encode()).decode() for name, part in parts.items()}

    def log_once(self, event: str, error: str) -> None:
        if event != self.logged:
            self.logged = event
            log.info(event, error=error)

    async def current(self) -> AccessToken:
        """The token that is good for a while, a new one if need be."""
        now = datetime.now(UTC)
        if self.token is None or self.token.renew_at() <= now:
            self.token = await self.mint(now)
        return self.token

    async def mint(self, now: datetime) -> AccessToken:
        """A new token of the account."""
        settings = self.session.settings
        body: Object = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": settings.token_seconds},
        }
        answer = await self.session.spoke.create(
            SERVICE_ACCOUNTS,
            body,
            settings.namespace,
            name=ACCESS_ACCOUNT,
            subresource="token",
        )
        status: Object = answer["status"]
        ends = datetime.fromisoformat(status["expirationTimestamp"])
        return AccessToken(status["token"], now, ends)


def content(token: AccessToken, spoke: Endpoint) -> dict[str, str]:
    """What the Secret holds, in base64."""
    parts: dict[str, str | bytes | None] = {
        "token": token.text,
        "server": spoke.server,
        "ca.crt": spoke.ca,
        "expiration": token.ends.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "proxy-url": spoke.proxy_url,
        "tls-server-name": spoke.tls_server_name,
    }
    return {
        name: base64.b64encode(part.encode() if isinstance(part, str) else part).decode()
        for name, part in parts.items()
        if part
    }


def without_address(wanted: Mapping[str, str]) -> dict[str, str]:
    """The same without how the cluster is reached directly."""
    return {
        name: text for name, text in wanted.items() if name not in ("proxy-url", "tls-server-name")
    }


def over(found: Object | None, wanted: Mapping[str, str]) -> dict[str, str | None]:
    """The data of a merge patch: what is wanted, and nothing of ours that was there before."""
    there = part(found, "data") if found else {}
    return {**dict.fromkeys(there), **wanted}


CONTROLLER = AgentController(
    "handover",
    AccessTokenController,
    home_rules=(rule("", ["serviceaccounts/token"], ["create"], [ACCESS_ACCOUNT]),),
)
