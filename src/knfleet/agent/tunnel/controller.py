"""Decides whether the agent has a tunnel, and with what: as the hub's ConfigMap and our flags say.

A hub without that ConfigMap, or one that is not ours, has no tunnel; then there is nothing to do.
"""

from collections.abc import Sequence

from knfleet.agent.agent_controller import AgentController, Wake
from knfleet.agent.hub_session import HubSession
from knfleet.agent.status.cluster_status import is_accepted, relevant_state
from knfleet.agent.tunnel.dial import TunnelEndpoint
from knfleet.agent.tunnel.tunnel_client import TunnelClient, TunnelConfig
from knfleet.agent.tunnel.tunnel_targets import tunnel_targets
from knfleet.api.cluster.tunnel import AUTHORITIES, ENDPOINT, SERVER_NAME, TUNNEL_CONFIG
from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Key, Object, Request
from knfleet.api.operator import OPERATOR_NAMESPACE
from knfleet.apply.manifest_fields import part
from knfleet.kube.cache.informer import Informer
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log
from knfleet.runtime.manager import Component

LOOK_SECONDS = 60.0
"""How often to look whether the certificate is another one; nothing is asked for that."""


class TunnelConfigController:
    """Configures the tunnel's connection."""

    def __init__(self, session: HubSession) -> None:
        self.session = session
        settings = session.settings
        self.config_map = Informer(
            session.hub,
            CONFIG_MAPS,
            OPERATOR_NAMESPACE,
            fields=f"metadata.name={TUNNEL_CONFIG}",
        )
        targets = tunnel_targets(session.spoke.transport.endpoint.server, settings.tunnel_services)
        self.client = TunnelClient(targets)
        self.problem = ""

    def watch(self, wake: Wake) -> Sequence[Component]:
        """The hub's ConfigMap, whether the cluster is accepted, and renewals of the certificate."""
        if self.session.settings.tunnel == "never":
            return []
        self.session.on_cluster(wake, relevant_state)
        self.session.condition_handlers.append(wake)
        self.config_map.on_change(lambda _: wake())
        return [self.config_map, self.client]

    async def reconcile(self, _request: Request) -> Result:
        """Connect as is wanted now, or not at all."""
        self.client.configure(self.wanted())
        return Result.after(LOOK_SECONDS)

    def wanted(self) -> TunnelConfig | None:
        """How to connect; None: not at all."""
        cluster = self.session.cluster()
        if self.session.settings.tunnel == "never" or cluster is None or not is_accepted(cluster):
            return None
        found = self.config_map.get(Key(OPERATOR_NAMESPACE, TUNNEL_CONFIG))
        if found is None:
            return None
        try:
            endpoint = tunnel_endpoint(found, self.session.address.endpoint.proxy_url)
        except ValueError as error:
            if str(error) != self.problem:
                self.problem = str(error)
                log.warning("tunnel configuration not usable", error=self.problem)
            return None
        credentials = self.session.identity.credentials
        if not credentials.certificate or not credentials.key:
            return None
        return TunnelConfig(endpoint, credentials.certificate, credentials.key)


def tunnel_endpoint(config_map: Object, proxy_url: str | None) -> TunnelEndpoint:
    """Where the hub's ConfigMap says that the tunnel is; raises `ValueError`."""
    data = part(config_map, "data")
    text = str(data.get(ENDPOINT) or "")
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"ConfigMap {TUNNEL_CONFIG}: {ENDPOINT} {text!r} is not host:port")
    authorities = str(data.get(AUTHORITIES) or "").encode()
    if not authorities:
        raise ValueError(f"ConfigMap {TUNNEL_CONFIG}: {AUTHORITIES} is missing")
    name = str(data.get(SERVER_NAME) or "")
    return TunnelEndpoint(host.strip("[]"), int(port), authorities, name, proxy_url)


CONTROLLER = AgentController("tunnel", TunnelConfigController)
