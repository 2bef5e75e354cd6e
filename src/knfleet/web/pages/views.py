"""What each page shows: pure functions from the fleet, as its viewer sees it, to pages."""

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.view.addon.addon_matrix import AddOnLine, AddOnMatrix, RolloutRow
from knfleet.view.chain import Chain
from knfleet.view.fleet_model import STANDS, ClusterRow, FleetView, InstallRow
from knfleet.view.work.work_rows import WorkRow
from knfleet.web.pages import templates
from knfleet.web.pages.history import HistoryEntry
from knfleet.web.pages.page import WebPage
from knfleet.web.pages.routes import Route, finds
from knfleet.web.pages.templates import (
    block,
    cluster_tile,
    install_id,
    install_line,
    manifest_id,
    tile_id,
    work_id,
    work_line,
)
from knfleet.web.pages.version_matrix import KINDS, Known, VersionRow, matrix

ROWS = 100
MANIFESTS = 500
"""So many installations on one page; broken ones come first."""
TILES = 300


class FleetCounts(Struct, frozen=True):
    """How many of each state there are."""

    clusters: int
    installs: int
    bad_clusters: int
    states: dict[str, int]


class InstallDetail(Struct, frozen=True):
    """What is known of one installation beside the fleet."""

    manifest: Object
    chain: Chain
    events: tuple[HistoryEntry, ...] = ()
    events_note: str = ""
    """Why there are no Events, if they could not be read."""
    target_note: str = ""
    """Why the failing link could not be opened, if it could not."""
    steps: tuple[str, ...] = ()


def overview(fleet: FleetView, route: Route) -> WebPage:
    installs = [each for each in fleet.installs if is_found(each, route.words)]
    broken = broken_on(fleet)
    clusters = [each for each in fleet.clusters if is_cluster_found(each, route.words)]
    clusters.sort(key=lambda each: each.name not in broken and each.stand != "bad")
    pages = max(1, -(-len(installs) // ROWS))
    number = min(route.number, pages)
    shown = installs[(number - 1) * ROWS : number * ROWS]
    tiles = clusters[:TILES]
    blocks = {
        "counts": block("counts", numbers(fleet)),
        "notes": block("notes", fleet.warnings),
        "found": block("found", route, len(clusters), len(installs), len(clusters) - len(tiles)),
        "pages": block("pages", route.search, number, pages),
        **{tile_id(each): cluster_tile(each, broken.get(each.name, "")) for each in tiles},
        **{install_id(each): install_line(each) for each in shown},
    }
    lists = {
        "tiles": tuple(tile_id(each) for each in tiles),
        "installs": tuple(install_id(each) for each in shown),
    }
    return WebPage("Fleet", "overview.html", blocks, lists, {"search": route.search})


def broken_on(fleet: FleetView) -> dict[str, str]:
    """Which components are broken, in words, by cluster."""
    found: dict[str, list[str]] = {}
    for each in fleet.installs:
        if each.stand == "bad" and each.cluster:
            found.setdefault(each.cluster, []).append(templates.component(each.kind))
    return {name: ", ".join(sorted(set(kinds))) for name, kinds in found.items()}


def numbers(fleet: FleetView) -> FleetCounts:
    """How many there are of everything."""
    bad = sum(each.stand == "bad" for each in fleet.clusters)
    states = Counter(each.stand for each in fleet.installs)
    return FleetCounts(len(fleet.clusters), len(fleet.installs), bad, dict(states))


def is_found(row: InstallRow, words: list[str]) -> bool:
    """Whether an installation is what is searched for."""
    return finds(
        words,
        row.ref,
        row.target,
        row.cluster,
        row.installed,
        row.wanted,
        row.reason,
        templates.WORDS[row.stand],
    )


def is_cluster_found(row: ClusterRow, words: list[str]) -> bool:
    """Whether a cluster is what is searched for."""
    return finds(
        words,
        row.name,
        row.kubernetes,
        row.reason,
        templates.WORDS[row.stand],
        f"serving {row.serving} eventing {row.eventing}",
        *row.profiles,
        *row.sets,
    )


def versions(fleet: FleetView, route: Route, known: Known) -> WebPage:
    """Clusters by components, with what each may become next."""
    lines = [each for each in matrix(fleet, known) if is_line_found(each, route.words)]
    shown = lines[:TILES]
    blocks = {
        "notes": block("notes", fleet.warnings),
        "known": block("known", {kind: known.get(kind, ()) for kind in KINDS}),
        "found": block("lines", len(shown), len(lines)),
        **{f"v:{each.name}": block("line", each) for each in shown},
    }
    lists = {"matrix": tuple(f"v:{each.name}" for each in shown)}
    return WebPage("Versions", "versions.html", blocks, lists, {"search": route.search})


def addons(found: AddOnMatrix, notes: Sequence[str], route: Route) -> WebPage:
    """Clusters by add-ons, and how far rollouts are."""
    lines = [each for each in found.lines if is_addon_line_found(each, route.words)]
    shown = lines[:TILES]
    rollouts = found.rollouts[:ROWS]
    blocks = {
        "notes": block("notes", notes),
        "found": block("lines", len(shown), len(lines)),
        "addon-names": block("addon_names", found.addons),
        **{rollout_id(each): block("rollout", each) for each in rollouts},
        **{f"a:{each.cluster}": block("addon_line", each) for each in shown},
    }
    lists = {
        "matrix": tuple(f"a:{each.cluster}" for each in shown),
        "rollouts": tuple(map(rollout_id, rollouts)),
    }
    return WebPage("Add-ons", "addons.html", blocks, lists, {"search": route.search})


def rollout_id(row: RolloutRow) -> str:
    return f"r:{row.addon}:{row.placement}"


def is_addon_line_found(line: AddOnLine, words: list[str]) -> bool:
    """Whether the add-ons of a cluster are what is searched for."""
    cells = [each for each in line.cells if each is not None]
    texts = [f"{each.addon} {each.reason} {templates.WORDS[each.stand]}" for each in cells]
    return finds(words, line.cluster, *texts)


def is_line_found(line: VersionRow, words: list[str]) -> bool:
    """Whether a line of the matrix is what is searched for."""
    cells = [*line.serving, *line.eventing]
    texts = [f"{each.install.installed} {each.install.wanted}" for each in cells]
    return finds(words, line.name, *texts)


def cluster(
    fleet: FleetView, route: Route, works: Sequence[WorkRow] = (), notes: Sequence[str] = ()
) -> WebPage | None:
    """One cluster, what is installed on it, and its works; None when it is unknown.

    `notes` say why works may be missing.
    """
    (name,) = route.parts
    row = next((each for each in fleet.clusters if each.name == name), None)
    if row is None:
        return None
    installs = [each for each in fleet.installs if each.cluster == name]
    shown = works[:ROWS]
    blocks = {
        "notes": block("notes", fleet.warnings),
        "cluster": block("cluster", row),
        "work-notes": block("work_notes", notes, len(works), len(works) - len(shown)),
        **{install_id(each): install_line(each) for each in installs},
        **{work_id(each): work_line(each) for each in shown},
    }
    lists = {
        "installs": tuple(map(install_id, installs)),
        "works": tuple(map(work_id, shown)),
    }
    return WebPage(name, "cluster.html", blocks, lists, {"name": name})


def work(row: WorkRow, notes: Sequence[str]) -> WebPage:
    """One work: its conditions, and the state of each manifest, failing ones first."""
    order = sorted(row.manifests, key=lambda each: (STANDS.index(each.stand), each.ordinal))
    shown = order[:MANIFESTS]
    blocks = {
        "notes": block("notes", notes),
        "head": block("work_head", row),
        "conditions": block("conditions", row.conditions),
        "found": block("manifests_found", len(order), len(order) - len(shown)),
        **{manifest_id(each): block("manifest", each) for each in shown},
    }
    lists = {"manifests": tuple(map(manifest_id, shown))}
    return WebPage(f"Work {row.name}", "work.html", blocks, lists, {"row": row})


def install(about: InstallDetail, forms: "FormContext") -> WebPage:
    """One installation: its chain, its conditions, and what happened to it."""
    row = about.chain.install
    others = [each for each in about.events if not each.is_repair]
    repairs = [each for each in about.events if each.is_repair]
    blocks = {
        "head": block("head", row),
        "chain": block("chain", about.chain, about.target_note),
        "conditions": block("conditions", row.conditions),
        "events": block("events", others, about.events_note, "No Events are kept at the moment."),
        "repairs": block(
            "events", repairs, about.events_note, "Nothing had to be repaired lately.", "repairs"
        ),
        "actions": block("actions", row, forms, about.steps) if forms.csrf else "",
    }
    title = f"{templates.component(row.kind)} {row.namespace}/{row.name}"
    return WebPage(title, "install.html", blocks, {}, {"row": row, "has_actions": bool(forms.csrf)})


class FormContext(Struct, frozen=True):
    """What forms need; without a token there are none."""

    csrf: str = ""

    def __repr__(self) -> str:
        return "FormContext()"


PAGES: dict[str, Callable[[FleetView, Route, Known], WebPage | None]] = {
    "overview": lambda fleet, route, _known: overview(fleet, route),
    "versions": versions,
}
"""The pages that all viewers who see the same share, by the name of their route."""

Build = Callable[[], WebPage | None]
"""Draws a page as it is now; None when what it is about is gone."""
