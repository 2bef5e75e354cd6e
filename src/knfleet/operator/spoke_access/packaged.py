"""The rights for all releases of Knative that this version knows, without their release files.

`join` is run where no release files are, so that Knative's ClusterRoles are not known: the account
writes them itself, and may escalate them, by name. The file beside this module is made from the
release files in the Knative Operator's Go module, by `make rights`; a test compares.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec
from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.apply.rights import rights_in
from knfleet.operator.spoke_access.release_rights import RightsChoice, release_rights
from knfleet.operator.spoke_access.rights import SpokeRights
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.release.source.sources import GoModuleSource

FILE = "knative_rights.json"


class RightsFile(Struct, frozen=True, rename="camel"):
    """Rights as rules, which are much shorter."""

    namespaces: tuple[str, ...]
    cluster: tuple[Object, ...]
    roles: dict[str, tuple[Object, ...]]


@cache
def packaged_rights() -> SpokeRights:
    """The rights for all releases and components."""
    content = files("knfleet.operator.spoke_access").joinpath(FILE).read_bytes()
    return decoded(content)


def decoded(content: bytes) -> SpokeRights:
    """Rights from the content of a file."""
    read = msgspec.json.decode(content, type=RightsFile)
    rights = {each for rule in read.cluster for each in rights_in(rule)}
    for namespace, rules in read.roles.items():
        rights.update(each for rule in rules for each in rights_in(rule, namespace))
    return SpokeRights(frozenset(rights), read.namespaces, {})


def encoded(rights: SpokeRights) -> bytes:
    """Rights as the content of a file, in which differences are easy to see."""
    encode = msgspec.json.Encoder(order="sorted").encode
    roles = (
        b"%b: %b" % (encode(namespace), lines(b"[]", map(encode, rules)))
        for namespace, rules in sorted(rights.namespace_rules.items())
    )
    written = [
        b'"namespaces": %b' % encode(rights.namespaces),
        b'"cluster": %b' % lines(b"[]", map(encode, rights.cluster_rules)),
        b'"roles": %b' % lines(b"{}", roles),
    ]
    return b"{%b}\n" % b",\n".join(written)


def lines(around: bytes, entries: Iterable[bytes]) -> bytes:
    """A list or mapping with a line for each entry."""
    return around[:1] + b"\n" + b",\n".join(entries) + b"\n" + around[1:]


async def generate() -> bytes:
    """The content of the file, from the release files of the Go module."""
    root = await GoModuleSource().fetch()
    with tempfile.TemporaryDirectory() as folder:
        releases = Releases(root, cache=ParsedCache(Path(folder)))
        rights = await release_rights(releases, RightsChoice())
        return encoded(rights.anywhere().with_own_roles())


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(asyncio.run(generate()))
