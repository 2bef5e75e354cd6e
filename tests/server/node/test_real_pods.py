"""Pods of our own image run as processes, with the rights and files that their manifests name."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import psutil
import pytest

from knfleet.api.core import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from knfleet.api.meta import Key, Object
from knfleet.dev.control_plane import NODE
from knfleet.dev.node.containers.orphan_processes import orphans
from knfleet.dev.node.pods.pod_manifests import is_ready, phase_of, rows, status_of
from testbed.clusters import Pool
from testbed.waiting import until
from tests.server.node.cluster import (
    Cluster,
    all_ready,
    available,
    condition,
    container_state,
    script,
    waits_with,
)

ASK_API_SERVER = """
import asyncio
from knfleet.api.core import CONFIG_MAPS, SECRETS
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden
from knfleet.kube.auth.in_cluster import in_cluster
async def main():
    async with Client(in_cluster()) as client:
        print(client.namespace, len((await client.list(CONFIG_MAPS, client.namespace)).items))
        try:
            await client.list(SECRETS, client.namespace)
        except Forbidden:
            print("no secrets")
asyncio.run(main())
"""

FOREVER = "import signal; print('up', flush=True); signal.pause()"


def restarts(pod: Object) -> int:
    """How often a pod's only container was restarted."""
    return sum(each["restartCount"] for each in rows(status_of(pod).get("containerStatuses")))


async def grant_config_maps(cluster: Cluster, account: str) -> None:
    """Make a ServiceAccount that may list ConfigMaps and nothing else."""
    await cluster.create(SERVICE_ACCOUNTS, {"metadata": {"name": account}})
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    await cluster.create(ROLES, {"metadata": {"name": account}, "rules": [rule]})
    binding: Object = {
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    }
    await cluster.create(ROLE_BINDINGS, binding)


async def test_a_pod_of_our_image_has_the_rights_of_its_service_account(cluster: Cluster) -> None:
    """What its role grants works, and what it lacks is refused; the log can be read as usual."""
    await grant_config_maps(cluster, "reader")

    await cluster.job("ask", serviceAccountName="reader", containers=[script(ASK_API_SERVER)])
    await cluster.when(JOBS, "ask", condition("Complete"))
    [pod] = await cluster.pods_when("app=ask", lambda pods: len(pods) == 1)

    assert await cluster.log(pod["metadata"]["name"]) == "default 1\nno secrets\n"


async def test_the_exit_code_of_a_process_is_the_exit_code_of_its_container(
    cluster: Cluster,
) -> None:
    """A Job of our image fails when its program does."""
    await cluster.job("fail", containers=[script("import sys; print('no'); sys.exit(3)")])

    await cluster.when(JOBS, "fail", condition("Failed"))
    [pod] = await cluster.pods_when("app=fail", lambda pods: len(pods) == 1)

    assert phase_of(pod) == "Failed"
    assert container_state(pod)["terminated"]["exitCode"] == 3
    assert container_state(pod)["terminated"]["reason"] == "Error"


async def test_a_process_that_exits_is_restarted(cluster: Cluster) -> None:
    """The status tells of the restart, and the log of the run before can be read."""
    once = "import os, pathlib, signal, sys\nmark = pathlib.Path('mark')\n"
    once += "if not mark.exists():\n    mark.touch(); print('first'); sys.exit(7)\n"
    once += "print('second', flush=True)\nsignal.pause()"

    await cluster.deploy("phoenix", containers=[script(once)])
    [pod] = await cluster.pods_when(
        "app=phoenix",
        lambda pods: (
            all_ready(1)(pods) and status_of(pods[0])["containerStatuses"][0]["restartCount"] == 1
        ),
    )

    [status] = status_of(pod)["containerStatuses"]
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert await cluster.log(pod["metadata"]["name"], "previous=true") == "first\n"

    async def second() -> bool:
        return await cluster.log(pod["metadata"]["name"], "tailLines=1") == "second\n"

    await until(second, "the log ends with what the second run wrote")


async def test_a_program_that_always_fails_is_in_a_crash_loop(cluster: Cluster) -> None:
    """As kubectl shows it."""
    await cluster.deploy("loop", containers=[script("raise SystemExit(1)")])

    await cluster.pods_when("app=loop", waits_with("CrashLoopBackOff"))


async def test_a_changed_config_map_reaches_the_mounted_file(cluster: Cluster) -> None:
    """The probe reads the file at the mount path that the manifest gives."""
    await cluster.create(CONFIG_MAPS, {"metadata": {"name": "words"}, "data": {"word": "old"}})
    check = "import sys; sys.exit(open('/etc/words/word').read() != 'new')"
    probe = {"exec": {"command": ["python", "-c", check]}, "periodSeconds": 1, "timeoutSeconds": 5}
    mounted = script(
        FOREVER,
        readinessProbe=probe,
        volumeMounts=[{"name": "words", "mountPath": "/etc/words"}],
    )
    volume = {"name": "words", "configMap": {"name": "words"}}
    await cluster.deploy("reader", containers=[mounted], volumes=[volume])
    [pod] = await cluster.pods_when(
        "app=reader", lambda pods: any("running" in container_state(pod) for pod in pods)
    )
    assert not is_ready(pod)

    await cluster.client.patch(CONFIG_MAPS, Key("default", "words"), {"data": {"word": "new"}})

    await cluster.pods_when("app=reader", all_ready(1))


async def test_a_missing_secret_is_waited_for(cluster: Cluster) -> None:
    """The state names what is missing, and nothing but its creation is needed to go on."""
    source = {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "words", "key": "word"}}}
    await cluster.deploy("waiter", containers=[script(FOREVER, env=[source])])
    [pod] = await cluster.pods_when("app=waiter", waits_with("CreateContainerConfigError"))
    assert container_state(pod)["waiting"]["message"] == 'secret "words" not found'

    await cluster.create(SECRETS, {"metadata": {"name": "words"}, "stringData": {"word": "x"}})

    await cluster.pods_when("app=waiter", all_ready(1))


async def test_a_volume_that_cannot_be_had_is_told(cluster: Cluster) -> None:
    """No file of this machine is given to a pod."""
    volume = {"name": "etc", "hostPath": {"path": "/etc"}}
    await cluster.deploy("nosy", containers=[script(FOREVER)], volumes=[volume])

    [pod] = await cluster.pods_when("app=nosy", waits_with("CreateContainerError"))

    assert "hostPath" in container_state(pod)["waiting"]["message"]


async def test_processes_end_when_the_deployment_is_scaled_to_zero(cluster: Cluster) -> None:
    """Asked by SIGTERM first, with time to answer."""
    await cluster.deploy("brief", replicas=2, containers=[script(FOREVER)])
    await cluster.when(DEPLOYMENTS, "brief", available)
    alive = orphans(cluster.lent.pods_folder)
    assert len(alive) == 2

    await cluster.client.patch(DEPLOYMENTS, Key("default", "brief"), {"spec": {"replicas": 0}})
    await cluster.pods_when("app=brief", lambda pods: not pods)

    assert [each for each in alive if psutil.pid_exists(each.pid)] == []


async def test_a_real_pod_can_be_held_and_broken(cluster: Cluster) -> None:
    """A held one keeps its process; a broken one loses it until it is mended."""
    await cluster.deploy("web", containers=[script(FOREVER)])
    await cluster.when(DEPLOYMENTS, "web", available)
    before = orphans(cluster.lent.pods_folder)

    await cluster.annotate(DEPLOYMENTS, "web", hold="true")
    await cluster.pods_when("app=web", lambda pods: not any(map(is_ready, pods)))
    assert orphans(cluster.lent.pods_folder) == before

    await cluster.annotate(DEPLOYMENTS, "web", hold=None, **{"break": "CrashLoopBackOff"})
    await cluster.pods_when("app=web", waits_with("CrashLoopBackOff"))
    assert orphans(cluster.lent.pods_folder) == []

    await cluster.annotate(DEPLOYMENTS, "web", **{"break": None})
    await cluster.when(DEPLOYMENTS, "web", available)
    assert len(orphans(cluster.lent.pods_folder)) == 1


async def test_a_container_that_stops_answering_is_restarted(cluster: Cluster) -> None:
    """Probes reach the pod's own address by the name of a port."""
    serve = """
import http.server, os
class Answer(http.server.BaseHTTPRequestHandler):
    count = 0
    def do_GET(self):
        Answer.count += 1
        self.send_response(200 if Answer.count < 3 else 500); self.end_headers()
    def log_message(self, *args): pass
http.server.HTTPServer((os.environ["KNFLEET_BIND_ADDRESS"], 8080), Answer).serve_forever()
"""
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 1}
    container = script(
        serve,
        ports=[{"name": "http", "containerPort": 8080}],
        livenessProbe={**probe, "failureThreshold": 1, "initialDelaySeconds": 1},
    )

    await cluster.deploy("moody", containers=[container])

    await cluster.pods_when(
        "app=moody",
        lambda pods: any(restarts(pod) > 0 for pod in pods),
    )


async def test_init_containers_run_first_and_share_volumes(cluster: Cluster) -> None:
    """In order, each to its end, with the expansion of variables that Kubernetes promises."""
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    env = [
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "GREETING", "value": "hello from $(NODE)"},
    ]
    write = "import os; open('/shared/greeting', 'w').write(os.environ['GREETING'])"
    read = "print(open('/shared/greeting').read())"
    await cluster.job(
        "greet",
        initContainers=[script(write, volumeMounts=mounts, env=env, name="first")],
        containers=[script(read, volumeMounts=mounts)],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )

    await cluster.when(JOBS, "greet", condition("Complete"))
    [pod] = await cluster.pods_when("app=greet", lambda pods: len(pods) == 1)

    assert await cluster.log(pod["metadata"]["name"]) == "hello from hub-node\n"


async def test_an_image_volume_of_our_image_has_our_programs(cluster: Cluster) -> None:
    """This is how credential plugins come into the pods of others."""
    container = script("", command=["/plugins/knfleet", "--version"])
    container["volumeMounts"] = [{"name": "plugins", "mountPath": "/plugins"}]
    volume = {"name": "plugins", "image": {"reference": "registry.example/knfleet:v1"}}

    await cluster.job("version", containers=[container], volumes=[volume])
    await cluster.when(JOBS, "version", condition("Complete"))
    [pod] = await cluster.pods_when("app=version", lambda pods: len(pods) == 1)

    assert (await cluster.log(pod["metadata"]["name"])).startswith("knfleet, version ")


async def test_an_image_volume_of_a_plugins_image_has_our_plugin(cluster: Cluster) -> None:
    """Ours stands in for the reference one, under every name that documents use for it."""
    names = ("plugin-binary", "secretreader-plugin", "bin/secretreader-plugin")
    containers = [
        script("", command=[f"/plugins/{path}"], name=f"c{number}")
        | {"volumeMounts": [{"name": "plugins", "mountPath": "/plugins"}]}
        for number, path in enumerate(names)
    ]
    reference = "registry.example/cluster-inventory-api/secretreader:v0.1.0"
    volume = {"name": "plugins", "image": {"reference": reference}}

    await cluster.job("plugins", containers=containers, volumes=[volume])
    await cluster.when(JOBS, "plugins", condition("Failed"))
    [pod] = await cluster.pods_when("app=plugins", lambda pods: len(pods) == 1)

    for number in range(len(names)):
        said = await cluster.log(pod["metadata"]["name"], f"container=c{number}")
        assert said.startswith("[secretreader] KUBERNETES_EXEC_INFO is not set")


@pytest.fixture
async def node_pid(cluster: Cluster, pool: Pool) -> AsyncIterator[int]:
    """The node's process; it runs again afterwards."""
    yield cluster.pid_of(NODE)
    async with asyncio.timeout(60):
        await pool.ground.up(0)


async def test_a_killed_node_leaves_no_orphans_behind(
    cluster: Cluster, node_pid: int, pool: Pool
) -> None:
    """The next one ends what it finds, and its pods come back with a restart counted."""
    await cluster.deploy("real", containers=[script(FOREVER)])
    await cluster.deploy("simulated")
    await cluster.when(DEPLOYMENTS, "real", available)
    await cluster.when(DEPLOYMENTS, "simulated", available)
    [old] = orphans(cluster.lent.pods_folder)

    os.kill(node_pid, signal.SIGKILL)
    psutil.Process(node_pid).wait(10)
    assert psutil.pid_exists(old.pid)
    await cluster.client.patch(DEPLOYMENTS, Key("default", "simulated"), {"spec": {"replicas": 2}})
    await pool.ground.up(0)

    await cluster.when(DEPLOYMENTS, "simulated", available)
    [pod] = await cluster.pods_when(
        "app=real",
        lambda pods: (
            all_ready(1)(pods) and status_of(pods[0])["containerStatuses"][0]["restartCount"] == 1
        ),
    )
    [new] = orphans(cluster.lent.pods_folder)
    assert new.pid != old.pid
    assert not psutil.pid_exists(old.pid)
    [status] = status_of(pod)["containerStatuses"]
    assert status["lastState"]["terminated"]["message"] == "the node was restarted"


async def test_a_node_that_ends_takes_its_processes_along(
    cluster: Cluster, node_pid: int, pool: Pool
) -> None:
    """Even those that do not listen to SIGTERM."""
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    await cluster.deploy("deaf", containers=[script(deaf)])
    await cluster.when(DEPLOYMENTS, "deaf", available)
    [old] = orphans(cluster.lent.pods_folder)

    os.kill(node_pid, signal.SIGTERM)
    psutil.Process(node_pid).wait(10)

    assert not psutil.pid_exists(old.pid)
