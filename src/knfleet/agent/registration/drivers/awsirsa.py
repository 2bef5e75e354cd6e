"""Registration by an AWS role: the hub maps a role to the cluster, and there is no certificate.

The agent says on its ManagedCluster which EKS cluster it is; when it is accepted, the hub makes a
role that this agent alone can assume. There is nothing to renew but tokens, which are made here.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from knfleet.agent.registration.cluster_names import AgentNames
from knfleet.agent.registration.cluster_registration import (
    RegistrationRequest,
    ReportFailure,
    ensure_cluster,
    failure_reason,
)
from knfleet.agent.registration.drivers.driver import IssuedCertificate
from knfleet.agent.registration.identity import HUB, Bootstrap, HubCredentials, is_moved
from knfleet.agent.registration.role_login import (
    RoleCredentials,
    RoleLogin,
    login_in,
    login_of,
    role_kubeconfig,
)
from knfleet.agent.work.source import KubeSource
from knfleet.api.aws_registration import MANAGED_ARN, ROLE_SUFFIX
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import part
from knfleet.aws.aws_client import AwsClient
from knfleet.aws.aws_identity import jitter
from knfleet.aws.eks_arns import RegistrationRoles
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import KubeError
from knfleet.runtime.logs import log

if TYPE_CHECKING:
    from knfleet.agent.hub_session import CertificateHolder
    from knfleet.agent.work.source import WorkSource
    from knfleet.runtime.manager import Component

FIRST_CALLS = ClientOptions(attempts=1, concurrency=4)
FEW_AT_ONCE = ClientOptions(concurrency=12, user_agent="knfleet-agent")
POLL_SECONDS = (1.0, 15.0)
"""How long to wait between two tries before the role can be used: at first, and at most."""
NO_CERTIFICATE = IssuedCertificate(b"", b"")
NEVER = datetime.max.replace(tzinfo=UTC)
WAITING = "BootstrapSecretFunctional,HubKubeConfigSecretMissing"
FAILING = "BootstrapSecretFunctional,HubKubeConfigError"


class AwsRoleDriver:
    """Logs in to an EKS hub by a role that the hub makes for the cluster."""

    signer = ""

    def __init__(
        self, roles: RegistrationRoles | None = None, client: AwsClient | None = None
    ) -> None:
        self.roles = roles
        """None: the agent was not told which clusters it is about."""
        self.client = client or AwsClient()

    @property
    def login(self) -> RoleLogin | None:
        return None if self.roles is None else login_of(self.roles)

    @property
    def annotations(self) -> dict[str, str]:
        """Which EKS cluster we are, for the hub."""
        return {} if self.roles is None else role_annotations(self.roles)

    async def bootstrap_client(self, bootstrap: Bootstrap, cluster: str) -> Client:
        """A client of the hub's API server, for the bootstrap identity."""
        del cluster
        return Client(bootstrap.connection, FIRST_CALLS)

    def session_client(
        self, bootstrap: Bootstrap, cluster: str, identity: "CertificateHolder"
    ) -> Client:
        """A client of the hub's API server, for the role in the kubeconfig."""
        del cluster
        login = login_in(identity.credentials.kubeconfig) or self.login
        assert login is not None
        source = RoleCredentials(self.client, login)
        return Client(Connection(HUB, bootstrap.address.endpoint, source), FEW_AT_ONCE)

    def components(self, hub: Client) -> "Sequence[Component]":
        """Nothing."""
        del hub
        return ()

    def work_source(self, hub: Client, server: str, cluster: str) -> "WorkSource":
        """Works of the cluster's namespace."""
        return KubeSource(hub, server, cluster)

    def located(
        self, credentials: HubCredentials, bootstrap: Bootstrap, folder: Path | None
    ) -> HubCredentials:
        """Credentials with a kubeconfig for the hub and the role, and no certificate."""
        del folder
        kubeconfig = credentials.kubeconfig
        is_other = self.login is not None and login_in(kubeconfig) != self.login
        if self.login is not None and (is_other or is_moved(credentials, bootstrap.address)):
            kubeconfig = role_kubeconfig(bootstrap.address, self.login)
        return replace(credentials, kubeconfig=kubeconfig, key=b"", certificate=b"", config=b"")

    def problem(self, credentials: HubCredentials, names: AgentNames, now: datetime) -> str:
        """Why the kept kubeconfig cannot be used; empty when it can."""
        del names, now
        found = login_in(credentials.kubeconfig)
        if found is None:
            return "the cluster has not registered with a role yet"
        if self.login not in (None, found):
            return f"the cluster registered with role {found.role}, not with this one"
        return ""

    def expires(self, credentials: HubCredentials) -> datetime | None:
        """A role does not end."""
        return None if login_in(credentials.kubeconfig) is None else NEVER

    def renew_at(self, credentials: HubCredentials, chance: float) -> datetime | None:
        """Nothing of what is kept is renewed."""
        del chance
        return self.expires(credentials)

    def validity(self, credentials: HubCredentials) -> str:
        """Nothing: there is no certificate."""
        del credentials
        return ""

    async def obtain(
        self, hub: Client, wanted: RegistrationRequest, report: ReportFailure
    ) -> IssuedCertificate:
        """Wait until the hub knows the role, that is, until the cluster is accepted."""
        assert self.login is not None
        source = RoleCredentials(self.client, self.login)
        pause, most = POLL_SECONDS
        async with Client(Connection(HUB, hub.transport.endpoint, source), FIRST_CALLS) as tried:
            while True:
                reason, message = await self.attempt(tried, hub, wanted)
                if not message:
                    return NO_CERTIFICATE
                report(reason, message)
                await asyncio.sleep(jitter(pause))
                pause = min(2 * pause, most)

    async def attempt(
        self, tried: Client, hub: Client, wanted: RegistrationRequest
    ) -> tuple[str, str]:
        """Try the role; why it cannot be used yet, and nothing when it can."""
        name = wanted.names.cluster
        try:
            await tried.get(CLUSTERS, name)
        except KubeError as error:
            why = str(error)
        else:
            return "", ""
        try:
            accepted = await self.announce(hub, wanted)
        except KubeError as error:
            reason, text = failure_reason(error)
            return reason, f"{text}; and by the role: {why}"
        if not accepted:
            return WAITING, f"waiting for `knfleet accept --clusters {name}` on the hub"
        log.info("the hub accepted the cluster; its role cannot be used yet", error=why)
        hint = f"condition AWSRoleAccess of ManagedCluster {name} tells what the hub did"
        return FAILING, f"{why}; {hint}"

    async def announce(self, hub: Client, wanted: RegistrationRequest) -> bool:
        """Have the ManagedCluster there with our ARN; whether it is accepted."""
        await ensure_cluster(hub, wanted)
        found = await hub.get(CLUSTERS, wanted.names.cluster)
        present = part(found, "metadata", "annotations")
        if any(present.get(name) != value for name, value in self.annotations.items()):
            changed: Object = {"metadata": {"annotations": self.annotations}}
            await hub.patch(CLUSTERS, Key("", wanted.names.cluster), changed)
        return bool(part(found, "spec").get("hubAcceptsClient"))


def role_annotations(roles: RegistrationRoles) -> dict[str, str]:
    """What an agent says of itself on its ManagedCluster."""
    return {MANAGED_ARN: str(roles.managed), ROLE_SUFFIX: roles.suffix}
