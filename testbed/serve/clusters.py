"""Dev clusters of which the spokes run what is installed on them; the hub simulates as ever."""

import sys
from pathlib import Path

import msgspec

from knfleet.dev import control_plane
from knfleet.dev.binaries import locate
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.dev_folder import DevClusterState, DevFolder, write_private
from knfleet.dev.node import config
from knfleet.dev.node.containers.own_images import EVERY_IMAGE
from testbed.serve.images import Images

HUB = "hub"
ROOT = Path(__file__).parents[2]
MORE_CONTROLLERS = ("endpointslice-mirroring-controller",)
"""Serving writes Endpoints itself, for Services without a selector."""


class ServingClusters(DevClusters):
    """A hub, and spokes whose pods all run."""

    def __init__(self, folder: DevFolder, images: Images) -> None:
        super().__init__(folder)
        self.images = images

    def controller_manager(self, cluster: DevClusterState, tools: locate.Toolset) -> list[str]:
        """How the controller manager of a cluster is started."""
        chosen = ",".join((*control_plane.CONTROLLERS, *MORE_CONTROLLERS))
        return [
            f"--controllers={chosen}" if each.startswith("--controllers=") else each
            for each in super().controller_manager(cluster, tools)
        ]

    def node(self, cluster: DevClusterState) -> list[str]:
        """How the node of a cluster is started."""
        if cluster.name == HUB:
            return super().node(cluster)
        home = self.folder.cluster(cluster.name)
        chosen = control_plane.node_configuration(self.folder, cluster)
        chosen = msgspec.structs.replace(chosen, images=(EVERY_IMAGE,))
        write_private(home / "serving.json", config.dump(chosen))
        self.images.save(home / "images.json")
        return [
            *("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "testbed.serve"),
            *("--config", f"{home}/serving.json", "--images", f"{home}/images.json"),
        ]
