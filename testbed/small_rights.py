"""The least rights for the small release, which `join` does not know."""

import asyncio
import tempfile
from pathlib import Path

from knfleet.apply.rights import Right
from knfleet.clusters.preflight import NEEDED
from knfleet.install.access_manifests import Account, access_objects
from knfleet.kube.yaml import dump_all
from knfleet.operator.spoke_access.release_rights import RightsChoice, release_rights
from knfleet.operator.spoke_access.rights import SpokeRights
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from testbed import small_release

PREFLIGHT = frozenset(
    Right(resource.group, resource.plural, verb, "", "" if verb == "list" else "none")
    for resource, verb in NEEDED
)
"""What every real release needs, and the small one does not, for it has no such objects."""


async def small_rights(*versions: str) -> SpokeRights:
    """The least rights for some versions of the small release, else for all."""
    with tempfile.TemporaryDirectory() as folder:
        root = small_release.write(Path(folder) / "releases")
        releases = Releases(root, cache=ParsedCache(Path(folder) / "cache"))
        found = await release_rights(releases, RightsChoice(versions, ("serving",)))
    return SpokeRights(found.rights | PREFLIGHT, found.namespaces, found.provided)


def small_rights_file(folder: Path) -> Path:
    """A file for `knfleet join --access-rights`."""
    path = folder / "small-rights.yaml"
    path.write_text(dump_all(access_objects(asyncio.run(small_rights()), Account("nobody"))))
    return path
