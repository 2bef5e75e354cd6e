"""The registration drivers of agents; another one is a module beside these, and a line here."""

import importlib.util

from knfleet.agent.registration.drivers.awsirsa import AwsRoleDriver
from knfleet.agent.registration.drivers.csr import CSRDriver
from knfleet.agent.registration.drivers.driver import AgentRegistrationDriver
from knfleet.agent.registration.drivers.grpc import GrpcDriver
from knfleet.agent.registration.identity import HubCredentials
from knfleet.agent.registration.role_login import login_in
from knfleet.aws.eks_arns import RegistrationRoles

CSR, GRPC, AWSIRSA = "csr", "grpc", "awsirsa"
DRIVERS: dict[str, AgentRegistrationDriver] = {
    CSR: CSRDriver(),
    GRPC: GrpcDriver(),
    AWSIRSA: AwsRoleDriver(),
}
"""By the value of --registration-auth."""


def has_grpc() -> bool:
    """Whether the library for gRPC is installed."""
    return importlib.util.find_spec("grpc") is not None


def driver_of(credentials: HubCredentials) -> AgentRegistrationDriver:
    """The driver by which credentials were obtained."""
    if login_in(credentials.kubeconfig) is not None:
        return DRIVERS[AWSIRSA]
    return DRIVERS[GRPC if credentials.config else CSR]


def driver_for(auth_type: str, roles: RegistrationRoles | None) -> AgentRegistrationDriver | str:
    """The driver of a type, or why this agent cannot have it."""
    if auth_type == AWSIRSA:
        if roles is None:
            return "it needs --hub-cluster-arn and --managed-cluster-arn, or awsIrsa.hubClusterArn"
        return AwsRoleDriver(roles)
    if auth_type not in DRIVERS:
        return "there is no such driver"
    if auth_type == GRPC and not has_grpc():
        return "it needs the extra knfleet[grpc]"
    return DRIVERS[auth_type]
