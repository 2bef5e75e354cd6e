"""What people see of an installation that does not get ready, and of one that does."""

from knfleet.api.knative.resources import SERVINGS
from knfleet.dev.node.annotations import HOLD
from tests.support.commands import done, refused, type_in
from tests.support.fleets import Fleet


async def test_a_held_deployment_on_a_spoke_is_named_down_to_its_pod(fleet: Fleet) -> None:
    """From the hub alone one sees which pod on which cluster holds an installation up."""
    kubeconfig = fleet.hub.lent.kubeconfig
    providers = f"--clusterprofile-provider-file={fleet.providers}"
    await fleet.start()
    held = {"name": "controller", "annotations": {HOLD: "true"}}
    await fleet.deploy(workloads=[held])
    await fleet.hub.says(SERVINGS, "DeploymentsAvailable", "Waiting on deployments: controller;")

    shown = await done(kubeconfig, "status", "serving/knative", providers)

    (pod,) = [name for name in await fleet.one.pods() if name.startswith("controller-")]
    assert "KnativeServing knative-serving/knative on fleet/spoke1 is not ready" in shown
    assert "ok       target     fleet/spoke1 answers" in shown
    assert "busy     readiness" in shown
    assert "Deployment knative-serving/controller: 0/1" in shown
    assert f"ReplicaSet knative-serving/{pod.rpartition('-')[0]}: 0/1 ready" in shown
    assert f"Pod knative-serving/{pod}: ContainersNotReady" in shown
    assert "knfleet explain NotReady" in shown
    overview = await done(kubeconfig, "status")
    assert "1 installation: 1 in progress" in overview
    assert "workloads ready" in overview
    explained = await done(kubeconfig, "explain", "knative")
    assert "kubectl --context SPOKE get deployments,statefulsets -n knative-serving" in explained
    assert "not within 1 s: 0 of 1 ready" in await refused(
        kubeconfig, "wait", "knative", "--timeout", "1s"
    )

    await fleet.hub.change(SERVINGS, workloads=None)
    waited = await type_in(kubeconfig, "wait", "--all", "--timeout", "60")

    assert (waited.code, waited.out) == (0, "KnativeServing/knative-serving/knative ready\n")
    assert "after" in waited.err
    shown = await done(kubeconfig, "status", "knative", providers)
    assert "busy" not in shown
    assert "ok       readiness  all workloads are available" in shown
