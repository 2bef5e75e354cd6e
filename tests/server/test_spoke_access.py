"""A spoke with a real API server: rights, and a server that stands still."""

import os
import signal
from pathlib import Path

import pytest

from knfleet.api.core import CLUSTER_ROLE_BINDINGS
from knfleet.api.meta import Object
from knfleet.clusters import access_errors
from knfleet.clusters.connection_state import Phase
from knfleet.clusters.pool import PoolPolicy
from knfleet.clusters.timing import ClusterTiming
from knfleet.dev import processes
from knfleet.kube.client.verbs import Client
from testbed.clusters import Lent
from testbed.fakes.fleet import a_fleet, key, state_of, token_script, until_phase
from tests.server.test_logins import token_for

TIMES = ClusterTiming()


@pytest.mark.full
async def test_a_real_spoke_is_used_with_rights_and_lost_when_it_stands_still(
    hub: Client, lent: Lent, tmp_path: Path
) -> None:
    """With the times that users get: a loss is known within 15 s, and over soon after its end."""
    async with a_fleet(tmp_path) as fleet:
        fleet.write_plugin("plugin", token_script(await token_for(hub, "hub-access")))
        endpoint = lent.connection.endpoint
        fleet.put_profile("one", endpoint.server, ca=endpoint.ca)
        async with fleet.running(PoolPolicy(timing=TIMES)) as spokes:
            spokes.use(key("one"), "test")
            expected = access_errors.REMOTE_CLIENT_CREATION_FAILED
            state = await until_phase(spokes, "one", Phase.REFUSED, expected)
            assert "list clusterroles.rbac.authorization.k8s.io; create, list" in state.message
            assert "patch clusterrolebindings.rbac.authorization.k8s.io" in state.message
            assert state.uid == ""

            await hub.create(CLUSTER_ROLE_BINDINGS, administrator("hub-access"))
            state = await until_phase(spokes, "one", Phase.UP)
            kube_system = (await spokes.live(key("one"))).uid
            assert state.uid == kube_system != ""

            server = processes.recorded(lent.folder)[f"{lent.name}.kube-apiserver"].pid
            os.kill(server, signal.SIGSTOP)
            try:
                await until_phase(spokes, "one", Phase.LOST, expected)
            finally:
                os.kill(server, signal.SIGCONT)
            await until_phase(spokes, "one", Phase.UP)

            assert state_of(spokes, "one").uid == kube_system


def administrator(account: str) -> Object:
    """All rights for a ServiceAccount."""
    return {
        "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
        "kind": CLUSTER_ROLE_BINDINGS.kind,
        "metadata": {"name": account},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    }
