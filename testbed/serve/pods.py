"""Pods that run as they would on a kubelet: with their own network and their own root."""

import asyncio
import json
import sys
from pathlib import Path

from knfleet.api.meta import Object
from knfleet.dev.control_plane import SERVICE_ADDRESS
from knfleet.dev.dev_folder import write_private
from knfleet.dev.node.addresses import NODE_ADDRESS
from knfleet.dev.node.containers.container_command import expand
from knfleet.dev.node.containers.container_probes import Probe, port_number, probe_of, timing_of
from knfleet.dev.node.containers.container_process import ProcessSpec
from knfleet.dev.node.pods.pod_folders import mounted
from knfleet.dev.node.pods.pod_manifests import rows
from knfleet.dev.node.pods.process_pod import PROBES, PodHost, ProcessPod
from knfleet.kube.auth.pod_path import POD_ROOT
from testbed.serve import container_root
from testbed.serve.images import Images
from testbed.serve.networks import ClusterNetwork, Namespace
from testbed.serve.probes import GrpcProbe

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOBODY = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"


class ServingHost(PodHost, frozen=True):
    """What a node gives to pods that have networks of their own."""

    network: ClusterNetwork
    cluster_images: Images


class ServingPod(ProcessPod):
    """A pod with a network namespace, whose containers have mount namespaces."""

    host: ServingHost
    grace_limit_seconds = 600.0

    async def run(self) -> None:
        """Run all containers in the pod's namespace, which ends with them."""
        self.namespace: Namespace = await asyncio.to_thread(
            self.host.network.connect_pod, self.address.reported
        )
        try:
            await super().run()
        finally:
            self.namespace.close()

    async def launch(self, container: Object) -> ProcessSpec:
        """How to start a container now, with its volumes in place."""
        variables = await self.variables(container)
        image = self.host.cluster_images.find(container["image"])
        command = container.get("command") or image.entrypoint
        arguments = [*command, *(container.get("args") or ())]
        volumes = [
            (str(mounted(self.folder.volume(each["name"]), each, variables)), each["mountPath"])
            for each in sorted(
                rows(container.get("volumeMounts")), key=lambda each: len(each["mountPath"])
            )
        ]
        files = [(str(source), path) for path, source in image.files.items()]
        spec: Object = {
            "network": self.namespace.path,
            "root": str(self.root(container)),
            "folder": container.get("workingDir") or "/",
            "hostname": self.pod["metadata"]["name"][:63],
            "files": self.files(),
            "mounts": [*files, *volumes],
        }
        return ProcessSpec(
            self.command(container, spec, [expand(each, variables) for each in arguments]),
            {**self.base_environment(self.root(container)), **variables},
            self.folder.path,
            self.probes_in(container, spec),
        )

    def root(self, container: Object) -> Path:
        """Where a container's root is mounted, in its own mount namespace."""
        root = self.folder.root(container["name"])
        root.mkdir(parents=True, exist_ok=True)
        return root

    def command(
        self, container: Object, spec: Object, arguments: list[str], purpose: str = "run"
    ) -> list[str]:
        """A command line that runs something in a container's root."""
        file = self.folder.path / f"{container['name']}.{purpose}.json"
        write_private(file, json.dumps({**spec, "arguments": arguments}))
        return [sys.executable, "-I", "-S", str(container_root.__file__), str(file)]

    def files(self) -> dict[str, str]:
        """What the kubelet writes below /etc."""
        meta = self.pod["metadata"]
        name, namespace = meta["name"], meta["namespace"]
        domain = "svc.cluster.local"
        search = f"{namespace}.{domain} {domain} cluster.local"
        return {
            "/etc/hosts": f"127.0.0.1 localhost\n{self.address.reported} {name}\n",
            "/etc/resolv.conf": f"nameserver {NODE_ADDRESS}\nsearch {search}\noptions ndots:5\n",
            "/etc/nsswitch.conf": "hosts: files dns\n",
            "/etc/passwd": NOBODY,
        }

    def base_environment(self, root: Path) -> dict[str, str]:
        """The variables that every container has."""
        return {
            "PATH": PATH,
            "HOME": "/",
            "HOSTNAME": self.pod["metadata"]["name"],
            "KUBERNETES_SERVICE_HOST": SERVICE_ADDRESS,
            "KUBERNETES_SERVICE_PORT": "443",
            "KUBERNETES_SERVICE_PORT_HTTPS": "443",
            POD_ROOT: str(root),
        }

    def probes_in(self, container: Object, spec: Object) -> dict[str, Probe]:
        """The container's probes, which come through its own network."""
        probes: dict[str, Probe] = {}
        for kind in PROBES:
            manifest = container.get(kind)
            if not manifest:
                continue
            if grpc := manifest.get("grpc"):
                number = port_number(grpc["port"], container)
                probes[kind] = GrpcProbe(
                    address=(self.address.reported, number),
                    service=grpc.get("service") or "",
                    **timing_of(manifest),
                )
            elif run := manifest.get("exec"):
                command = self.command(container, spec, list(run["command"]), kind)
                probes[kind] = Probe(command=tuple(command), **timing_of(manifest))
            else:
                probes[kind] = probe_of(manifest, container, self.address.reported)
        return probes
