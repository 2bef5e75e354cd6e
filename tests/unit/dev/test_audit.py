"""API servers of dev clusters write down who asked for what, if they are told to."""

from pathlib import Path

import msgspec

from knfleet.dev import control_plane
from knfleet.dev.binaries.locate import Tool
from knfleet.dev.control_plane import API_SERVER
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.dev_folder import DevClusterState, DevFolder

CLUSTER = DevClusterState("hub", 0, 20000, "/hub")


def test_a_policy_is_handed_to_the_api_server(tmp_path: Path) -> None:
    """Without one there is no log."""
    ground = DevClusters(DevFolder(tmp_path))
    ground.folder.cluster("hub").mkdir(parents=True)
    tools = {API_SERVER: Tool(API_SERVER, Path("server"), "1.35.0", "here")}
    assert not [each for each in ground.api_server(CLUSTER, tools) if "audit" in each]

    ground.audit_policy = {"kind": "Policy"}
    arguments = ground.api_server(CLUSTER, tools)

    (file,) = [each for each in arguments if each.startswith("--audit-policy-file=")]
    policy = Path(file.partition("=")[2]).read_bytes()
    assert msgspec.json.decode(policy) == {"kind": "Policy"}
    assert f"--audit-log-path={control_plane.audit_log(ground.folder, 'hub')}" in arguments
