"""Version numbers, and which release a `spec.version` means.

Numbers compare as semantic versions with or without a leading `v`, and `1.23` counts as `1.23.0`.
Names that are no versions (`latest`) come after all that are.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

LATEST = "latest"

SEMVER = re.compile(
    r"v?(0|[1-9]\d*)(?:\.(0|[1-9]\d*)(?:\.(0|[1-9]\d*)"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?)?)?",
    re.ASCII,
)
LONGEST = 128
"""No version is longer; it also keeps numbers small enough for `int`."""


class ReleaseVersion(Struct, frozen=True):
    """A semantic version; `parts` says how many of its three numbers were written."""

    major: int
    minor: int = 0
    patch: int = 0
    prerelease: str = ""
    parts: int = 3

    @property
    def minor_text(self) -> str:
        """`major.minor`, as ingress and source folders are called."""
        return f"{self.major}.{self.minor}"

    def order(self) -> tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]:
        """What versions are compared by: a prerelease comes before its release."""
        identifiers = self.prerelease.split(".") if self.prerelease else []
        return (
            self.major,
            self.minor,
            self.patch,
            not identifiers,
            tuple((not i.isdigit(), int(i) if i.isdigit() else 0, i) for i in identifiers),
        )


def parse(text: str) -> ReleaseVersion | None:
    """The version that a text writes down, with or without a leading `v`; None if it is none."""
    found = SEMVER.fullmatch(text) if len(text) <= LONGEST else None
    if found is None:
        return None
    major, minor, patch, prerelease = found.groups()
    identifiers = (prerelease or "").split(".")
    if any(i.isdigit() and len(i) > 1 and i.startswith("0") for i in identifiers):
        return None
    parts = 1 + (minor is not None) + (patch is not None)
    return ReleaseVersion(int(major), int(minor or 0), int(patch or 0), prerelease or "", parts)


def prefixed(text: str) -> str:
    """The text with a leading `v`, as messages show versions."""
    return text if text.startswith("v") else f"v{text}"


def is_latest(text: str) -> bool:
    """Whether the newest build is meant, in any spelling."""
    return text.lower() == LATEST


def newest_first(names: Iterable[str]) -> list[str]:
    """Release names, newest first; those that are no versions last."""
    numbered: list[tuple[ReleaseVersion, str]] = []
    others: list[str] = []
    for name in names:
        version = parse(name)
        if version is None:
            others.append(name)
        else:
            numbered.append((version, name))
    numbered.sort(key=lambda pair: (pair[0].order(), pair[1]), reverse=True)
    return [name for _, name in numbered] + sorted(others)


def target_version(wanted: str, releases: Sequence[str], *, own_manifests: bool = False) -> str:
    """The release that `spec.version` means, of `releases` (newest first).

    A text that names no release is returned as it is; loading it then says what there is. With
    manifests of the user's own, only `latest` has a meaning, and all else is the user's word.
    """
    if is_latest(wanted):
        return wanted if wanted in releases else next(iter(releases), wanted)
    if own_manifests:
        return wanted
    if not wanted:
        return next(iter(releases), wanted)
    version = parse(wanted)
    if version is None or version.parts != 2:
        return wanted
    return next((name for name in releases if is_of_minor(name, wanted, version)), wanted)


def is_of_minor(name: str, wanted: str, version: ReleaseVersion) -> bool:
    """Whether a release is one of the minor version that `wanted` spells."""
    release = parse(name)
    return (
        release is not None and name.startswith(wanted) and release.minor_text == version.minor_text
    )


def minor_of(version: str) -> str:
    """The folder of things released per minor version: `1.23`, or `latest`."""
    if is_latest(version):
        return LATEST
    parsed = parse(version)
    return parsed.minor_text if parsed else version
