"""From a bootstrap kubeconfig to credentials for the hub, however long that takes."""

import asyncio
import random

from knfleet.agent.registration.cluster_registration import (
    RegistrationRequest,
    ReportFailure,
    ensure_cluster,
    retry,
)
from knfleet.agent.registration.drivers.driver import AgentRegistrationDriver, RequestRefused
from knfleet.agent.registration.identity import Bootstrap, HubCredentials
from knfleet.runtime.logs import log

PATIENCE = (60.0, 90.0)
"""How long to wait after a refusal, at random between the two."""


async def register(
    driver: AgentRegistrationDriver,
    bootstrap: Bootstrap,
    wanted: RegistrationRequest,
    report: ReportFailure,
) -> HubCredentials:
    """Register the cluster with the hub, and obtain its credentials."""
    async with await driver.bootstrap_client(bootstrap, wanted.names.cluster) as hub:
        await retry(lambda: ensure_cluster(hub, wanted), report)
        while True:
            answer = await driver.obtain(hub, wanted, report)
            if not isinstance(answer, RequestRefused):
                return HubCredentials(
                    wanted.names.cluster,
                    wanted.names.agent,
                    key=answer.key,
                    certificate=answer.certificate,
                )
            log.error("registration refused", error=answer.why)
            report("BootstrapSecretError", answer.why)
            await asyncio.sleep(random.uniform(*PATIENCE))  # noqa: S311 - not a secret
