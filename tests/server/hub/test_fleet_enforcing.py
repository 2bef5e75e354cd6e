"""Nobody is invited before the API server keeps the fleet's rules."""

import pytest

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.hub.admission.policies import POLICY_VERSION
from knfleet.install.hub_manifests import hub_objects
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden
from knfleet.workflows.join_token import JoinToken, invite
from knfleet.workflows.object_lists import WaitTimeout, apply_all
from knfleet.workflows.policy_enforcement import SELF_MADE, enforced
from testbed.clusters import Lend


async def test_rules_that_are_not_kept_are_waited_for(lend: Lend):
    """And told of when they stay without effect; nothing is written meanwhile."""
    (lent,) = await lend(1)
    wanted = hub_objects()
    rules = [each for each in wanted if each["apiVersion"] == POLICY_VERSION]
    async with Client(lent.connection) as admin:
        await apply_all(admin, [each for each in wanted if each not in rules])
        made = await invite(admin, lent.connection.endpoint)
        async with Client(made.connection(lent.connection)) as asking:
            with pytest.raises(WaitTimeout, match="knfleet-acceptance has no effect") as caught:
                await enforced(asking, seconds=1)
            assert made.token not in str(caught.value)
        async with Client(JoinToken(made.server, "wrong").connection(lent.connection)) as nobody:
            with pytest.raises(WaitTimeout, match=r"cannot be seen \(.*Unauthorized"):
                await enforced(nobody, seconds=0)

        async with Client(made.connection(lent.connection)) as asking:
            await apply_all(admin, rules)
            await enforced(asking)
            with pytest.raises(Forbidden, match="managedclusters/accept"):
                await asking.create(CLUSTERS, SELF_MADE)
        assert (await admin.list(CLUSTERS)).items == []
