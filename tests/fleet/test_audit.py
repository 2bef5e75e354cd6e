"""The record of all writes of an operator, as a process, with a spoke."""

import json
from pathlib import Path

from click.testing import CliRunner

from knfleet.api.knative.resources import SERVINGS
from knfleet.cli.main import knfleet
from knfleet.runtime.audit.audit_file import rotated
from tests.support.fleets import FLEET, Fleet


async def test_every_write_to_hub_and_spoke_is_on_record(fleet: Fleet, tmp_path: Path) -> None:
    """By whom, for whom, where and what; across a kill; and nothing can be taken out unseen."""
    path = tmp_path / "audit" / "audit.log"
    file = f"--clusterprofile-provider-file={fleet.providers}"
    settings = {"SYSTEM_NAMESPACE": FLEET, "KNFLEET_AUDIT_FILE": str(path)}
    await fleet.operator.start("--disable-ha", file, **settings)
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")
    await fleet.operator.kill()
    await fleet.operator.start("--disable-ha", file, **settings)
    await fleet.hub.delete(SERVINGS)
    await fleet.hub.gone(SERVINGS)
    assert await fleet.operator.stop() == 0

    records = [json.loads(line) for each in rotated(path) for line in each.read_text().splitlines()]
    told = {(each["verb"], each["resource"], each.get("name", "")) for each in records}
    assert ("apply", "deployments.apps", "controller") in told
    assert ("delete", "deployments.apps", "controller") in told
    assert ("patch", "knativeservings.operator.knative.dev", "knative") in told
    applied = next(
        each
        for each in records
        if (each["verb"], each.get("name")) == ("apply", "controller")
        and each["resource"] == "deployments.apps"
    )
    assert applied["target"] != "hub"
    assert applied["manager"] == "knfleet"
    assert applied["key"] == "knative-serving/knative"
    assert applied["version"].isdecimal()
    assert "spec.replicas" in applied["fields"]

    fine = CliRunner().invoke(knfleet, ["audit", "verify", str(path)])
    assert fine.exit_code == 0, fine.output
    assert fine.output.splitlines()[-1].removeprefix("last hash: ") in fleet.operator.said()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:5], *lines[6:]]))
    broken = CliRunner().invoke(knfleet, ["audit", "verify", str(path)])
    assert (broken.exit_code, f"{path}:6: " in broken.output) == (1, True)
