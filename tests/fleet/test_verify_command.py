"""`knfleet verify`, on clusters whose pods are simulated."""

from pathlib import Path

from knfleet.api.knative.resources import SERVINGS
from knfleet.api.knative.verification import VERIFIED, VERIFY
from knfleet.api.meta import Key
from knfleet.apply.manifest_fields import part
from testbed.operators import HOME
from testbed.waiting import until
from tests.support.commands import type_in
from tests.support.fleets import Fleet

KEY = Key(HOME[SERVINGS], "knative")


async def test_a_request_is_answered_once_and_simulated_pods_do_not_pass(fleet: Fleet) -> None:
    """The operator says so in the condition, and notes which request that answers."""
    hub = fleet.hub
    await fleet.start()
    await fleet.deploy()
    await hub.client.patch(SERVINGS, KEY, {"metadata": {"annotations": {VERIFY: "first"}}})

    await hub.says(SERVINGS, "Verified", "simulated by a dev node", status="Unknown")
    await hub.ready(SERVINGS, "1.23.0")

    async def is_noted() -> bool:
        annotations = part(await hub.get(SERVINGS), "metadata", "annotations")
        return annotations.get(VERIFIED) == "first"

    await until(is_noted, "the request is noted as answered")
    assert (await hub.condition(SERVINGS, "Verified"))["reason"] == "PodsSimulated"

    printed = await type_in(Path(hub.lent.kubeconfig), "verify", "knative", "--timeout", "60")

    assert printed.code == 1, printed
    assert "KnativeServing/knative-serving/knative: PodsSimulated: " in printed.out
    later = part(await hub.get(SERVINGS), "metadata", "annotations")
    assert later[VERIFIED] != "first"
    assert later[VERIFIED] in later[VERIFY]
    await hub.client.patch(SERVINGS, KEY, {"metadata": {"annotations": {VERIFY: "no name!"}}})
    await hub.says(SERVINGS, "Verified", "cannot be used", status="False")
