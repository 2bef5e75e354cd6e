"""How the agent was asked to run."""

from collections.abc import Mapping

from msgspec import Struct

from knfleet.agent.registration.cluster_names import AgentNames
from knfleet.agent.registration.cluster_registration import RegistrationRequest
from knfleet.agent.status.cluster_status import ClaimFilter
from knfleet.agent.work.work_settings import WorkSettings
from knfleet.api.cluster.tunnel import TunnelMode
from knfleet.api.meta import Object
from knfleet.api.operator import AGENT_NAMESPACE
from knfleet.aws.eks_arns import RegistrationRoles
from knfleet.kube.endpoint import Endpoint

HEALTH_SECONDS = 60.0
TOKEN_SECONDS = 3600
LEAST_LIFETIME_SECONDS = 3600
ADDON_TOKEN_SECONDS = 365 * 24 * 3600
LEAST_ADDON_TOKEN_SECONDS = 600


class AgentSettings(Struct, frozen=True):
    """Flags of the process, read and checked."""

    asked: AgentNames = AgentNames("", "")
    namespace: str = AGENT_NAMESPACE
    auth_type: str = "csr"
    """The registration driver."""
    roles: RegistrationRoles | None = None
    """With awsirsa: the clusters whose roles are used."""
    health_seconds: float = HEALTH_SECONDS
    """How often the cluster is looked at when nothing changes."""
    lifetime_seconds: int = 0
    """How long certificates are to be valid; the hub decides when 0."""
    annotations: Mapping[str, str] = {}
    client_configs: tuple[Object, ...] = ()
    """Where the hub reaches the cluster, as the ManagedCluster says it."""
    claim_filter: ClaimFilter = ClaimFilter()
    """Which claims are reported to the hub."""
    has_claims: bool = True
    """Whether ClusterClaims are reported."""
    has_properties: bool = False
    """Whether ClusterProperties are reported as well."""
    spoke: Endpoint = Endpoint("")
    """Where the hub's operator reaches the cluster's API server."""
    hands_over: bool = True
    """Whether the hub gets a token for the cluster."""
    access_account: str = ""
    """The ServiceAccount whose token the hub gets, as namespace/name; empty: in our namespace."""
    token_seconds: int = TOKEN_SECONDS
    tunnel: TunnelMode = "auto"
    """Whether the hub reaches the cluster through a tunnel that the agent opens."""
    tunnel_services: tuple[str, ...] = ()
    """Services that can be reached through it beside the API server, as namespace/name:port."""
    works: WorkSettings = WorkSettings()
    """How ManifestWorks are handled."""
    addon_tokens: bool = False
    """Whether agents of add-ons reach the hub by tokens instead of certificates."""
    addon_token_seconds: int = ADDON_TOKEN_SECONDS
    klusterlet: str = ""
    """The Klusterlet whose status tells how the agent is; none when empty."""

    def registration(
        self, names: AgentNames, annotations: Mapping[str, str]
    ) -> RegistrationRequest:
        """What the hub gets at first; `annotations` are those of the registration driver."""
        every = {**self.annotations, **annotations}
        return RegistrationRequest(names, every, self.client_configs, self.lifetime_seconds)
