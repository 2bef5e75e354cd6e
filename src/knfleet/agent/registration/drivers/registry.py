"""The registration drivers of agents; another one is a module beside these, and a line here."""

import importlib.util

from knfleet.agent.registration.drivers.csr import CSRDriver
from knfleet.agent.registration.drivers.driver import AgentRegistrationDriver
from knfleet.agent.registration.drivers.grpc import GrpcDriver
from knfleet.agent.registration.identity import HubCredentials

CSR, GRPC = "csr", "grpc"
DRIVERS: dict[str, AgentRegistrationDriver] = {CSR: CSRDriver(), GRPC: GrpcDriver()}
"""By the value of --registration-auth."""


def has_grpc() -> bool:
    """Whether the library for gRPC is installed."""
    return importlib.util.find_spec("grpc") is not None


def driver_of(credentials: HubCredentials) -> AgentRegistrationDriver:
    """The driver by which credentials were obtained."""
    return DRIVERS[GRPC if credentials.config else CSR]
