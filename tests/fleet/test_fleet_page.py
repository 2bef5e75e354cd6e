"""docs/fleet.md, followed as a reader does."""

import os
import sys
from pathlib import Path

import pytest

from testbed.clusters import Lend, kubectl
from tests.support.commands import IMAGE
from tests.support.documents import Reader

pytestmark = [pytest.mark.xdist_group("agent"), pytest.mark.full]
PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"


async def test_the_page_about_fleets_can_be_followed(
    lend: Lend, small_root: Path, small_rights_path: Path, tmp_path: Path
):
    hub, _ = await lend(2)
    tools = [str(Path(sys.executable).parent), str(Path(kubectl()).parent)]
    environment = {
        "PATH": os.pathsep.join([*tools, os.environ["PATH"]]),
        "HOME": str(tmp_path),
        "KUBECONFIG": str(hub.folder.kubeconfig),
        "IMAGE": IMAGE,
        "RELEASES": str(small_root),
        "KNFLEET_ACCESS_RIGHTS": str(small_rights_path),
    }

    typed = await Reader(tmp_path, environment).follow(PAGE)

    assert typed == 7
