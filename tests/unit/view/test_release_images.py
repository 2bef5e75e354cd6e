"""Which images a release needs, wherever they are named."""

import asyncio
from pathlib import Path

from click.testing import CliRunner

from knfleet.cli.main import knfleet
from knfleet.operator.spoke_access.release_rights import RightsChoice
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.view.images.release_images import release_images

USUAL = ("serving", "kourier", "eventing")


def test_all_images_of_a_release_are_found(bundle_root: Path, tmp_path: Path) -> None:
    """In pods, variables, ConfigMaps, Jobs and Knative's own Images."""
    releases = Releases(bundle_root, cache=ParsedCache(tmp_path))

    found = asyncio.run(release_images(releases, RightsChoice(("1.23",), USUAL)))

    assert len(found) == 34
    users = {each.image.rpartition("@")[0].rpartition("/")[2]: each.used_by for each in found}
    assert "Image knative-serving/queue-proxy" in users["queue"]
    assert any(each.startswith("Job knative-serving/cleanup") for each in users["cleanup"])
    assert all(each.used_by for each in found)


def test_the_command_prints_one_image_a_line(bundle_root: Path) -> None:
    """For scripts that copy them."""
    arguments = ["airgap", "list", "--release", "1.23", "--dir", str(bundle_root)]

    printed = CliRunner().invoke(knfleet, [*arguments, "--components", ",".join(USUAL)])
    wrong = CliRunner().invoke(knfleet, [*arguments, "--components", "servin"])

    assert len(printed.output.splitlines()) == 34
    assert (wrong.exit_code, "there is no such component" in wrong.output) == (2, True)
