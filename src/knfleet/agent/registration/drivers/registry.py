"""The registration drivers of agents; another one is a module beside these, and a line here."""

from knfleet.agent.registration.drivers.csr import CSRDriver
from knfleet.agent.registration.drivers.driver import AgentRegistrationDriver

DRIVERS: dict[str, AgentRegistrationDriver] = {"csr": CSRDriver()}
"""By the value of --registration-auth."""
