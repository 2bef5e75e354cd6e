"""What the controllers of the operator may write depends on who leads."""

import pytest

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Object
from knfleet.kube.endpoint import Connection
from knfleet.operator.main import Operator
from knfleet.operator.settings import OperatorSettings
from knfleet.runtime.leader.leader import Leader, LostLeadership
from knfleet.runtime.manager import Manager
from testbed.waiting import until


def config_map(name: str) -> Object:
    """Something to write."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


async def leads(leader: Leader) -> bool:
    """Try once to lead; whether it does."""
    await leader.attempt()
    return leader.leads()


async def test_controllers_write_only_while_the_process_leads(hub_connection: Connection) -> None:
    """The Lease itself is written with another client, else nobody could ever lead."""
    manager = Manager()
    operator = Operator(manager, hub_connection, OperatorSettings(system_namespace="default"))
    election = {"lease-duration": "3s", "renew-deadline": "2s", "retry-period": "1s"}
    async with operator.client, manager.closing:
        settings = config_map("config-leader-election") | {"data": election}
        await operator.client.create(CONFIG_MAPS, settings, "default")
        await operator.elect()
        leader = manager.leader
        assert leader is not None
        with pytest.raises(LostLeadership):
            await operator.writer.create(CONFIG_MAPS, config_map("early"), "default")

        await until(lambda: leads(leader), "it leads")
        await operator.writer.create(CONFIG_MAPS, config_map("leading"), "default")

        await leader.release()
        with pytest.raises(LostLeadership):
            await operator.writer.create(CONFIG_MAPS, config_map("late"), "default")
        found = await operator.client.list(CONFIG_MAPS, "default")

    names = {each["metadata"]["name"] for each in found.items}
    assert names & {"early", "leading", "late"} == {"leading"}


async def test_without_an_election_everybody_writes(hub_connection: Connection) -> None:
    """One process is all there is."""
    manager = Manager()
    settings = OperatorSettings(system_namespace="default", disable_ha=True)
    operator = Operator(manager, hub_connection, settings)
    async with operator.client:
        await operator.elect()
        await operator.writer.create(CONFIG_MAPS, config_map("alone"), "default")
        found = await operator.client.list(CONFIG_MAPS, "default", fields="metadata.name=alone")

    assert manager.leader is None
    assert len(found.items) == 1
