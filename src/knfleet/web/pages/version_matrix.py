"""Which releases are where, and which may come next: clusters by components."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.release.errors import NotEligible
from knfleet.release.upgrade_path import check_migration
from knfleet.release.version import ReleaseVersion, newest_first, parse
from knfleet.view.fleet_model import ClusterRow, FleetView, InstallRow
from knfleet.view.fleet_reader import HUB_TARGET

KINDS = (SERVINGS.kind, EVENTINGS.kind)


class VersionCell(Struct, frozen=True):
    """One installation, and where it may go."""

    install: InstallRow
    steps: tuple[str, ...] = ()
    """Releases that it may become next, newest first."""
    path: tuple[str, ...] = ()
    """All releases on the way to the newest, in their order."""


class VersionRow(Struct, frozen=True):
    """One cluster of the matrix."""

    name: str
    cluster: ClusterRow | None
    serving: tuple[VersionCell, ...] = ()
    eventing: tuple[VersionCell, ...] = ()


Known = dict[str, Sequence[str]]
"""Releases that can be installed, newest first, by kind."""


def matrix(fleet: FleetView, known: Known) -> list[VersionRow]:
    """A line for the hub, if anything is on it, and for each cluster."""
    rows: dict[str, dict[str, list[VersionCell]]] = {}
    for install in fleet.installs:
        route = install.cluster or install.target
        cells = rows.setdefault(route, {kind: [] for kind in KINDS})
        cells[install.kind].append(cell(install, known.get(install.kind, ())))
    clusters = {row.name: row for row in fleet.clusters}
    names = [*(name for name in rows if name not in clusters), *clusters]
    names.sort(key=lambda name: (name != HUB_TARGET, name))
    return [line(name, clusters.get(name), rows.get(name, {})) for name in names]


def line(name: str, cluster: ClusterRow | None, cells: dict[str, list[VersionCell]]) -> VersionRow:
    serving, eventing = (tuple(cells.get(kind, ())) for kind in KINDS)
    return VersionRow(name, cluster, serving, eventing)


def cell(install: InstallRow, known: Sequence[str]) -> VersionCell:
    """An installation with its next steps."""
    if not install.installed or install.deleting:
        return VersionCell(install)
    return VersionCell(
        install,
        tuple(next_steps(install.installed, known, install.kind)),
        tuple(path(install.installed, known)),
    )


def next_steps(installed: str, known: Iterable[str], kind: str) -> list[str]:
    """Newer releases that an installed one may become in one step, newest first."""
    now = parse(installed)
    if now is None:
        return []
    found: list[str] = []
    for name in newest_first(known):
        version = parse(name)
        if version is None or version.order() <= now.order():
            continue
        try:
            check_migration(installed, name, kind=kind)
        except NotEligible:
            continue
        found.append(name)
    return found


def path(installed: str, known: Iterable[str]) -> list[str]:
    """The steps to the newest release: the newest of each minor version that comes after."""
    now = parse(installed)
    if now is None:
        return []
    by_minor: dict[tuple[int, int], str] = {}
    for name in newest_first(known):
        version = parse(name)
        if version is not None and version.order() > now.order():
            by_minor.setdefault((version.major, version.minor), name)
    minors = sorted(by_minor)
    if len(minors) > 1 and minors[0] == (now.major, now.minor):
        # A newer patch of the same minor version is no station on the way.
        minors = minors[1:]
    return [by_minor[each] for each in minors]


def known_in(fleet: FleetView) -> Known:
    """The releases that the fleet itself tells of, where no release files are at hand."""
    return {
        kind: newest_first(
            {
                version
                for each in fleet.installs
                if each.kind == kind
                for version in (each.installed, each.wanted)
                if is_full(parse(version))
            }
        )
        for kind in KINDS
    }


def is_full(version: ReleaseVersion | None) -> bool:
    """Whether a version names one release."""
    return version is not None and version.parts == 3
