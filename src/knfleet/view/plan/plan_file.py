"""Plans in files: kept with the world that they were made for, and carried out only in that.

To carry a plan out is to write the custom resource; the operator does the rest. Before that the
plan is made once more: when anything it rests on has moved, it is refused.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from knfleet.api.meta import Key, Object
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, Invalid, NotFound
from knfleet.view.plan.model import FORMAT, FleetPlan, ResourcePlan, SavedPlan
from knfleet.view.plan.planner import Planner, resource_stamp
from knfleet.view.plan.preview import PlanSubject
from knfleet.view.plan.saved_file import PlanFileError, read_plan, write_plan
from knfleet.view.plan.subjects import guarded_patch_of, of_manifest, title, written

NAMES_SHOWN = 5
AGAIN = "make the plan again"


class PlanOutdated(Exception):
    """Something that a plan rests on is not what it was."""


def save(path: Path, plans: FleetPlan, subjects: Sequence[PlanSubject]) -> None:
    """Write plans into a file that only its owner can read; raises `PlanFileError`."""
    bad = [plan.title for plan in plans.plans if plan.problems]
    if bad:
        raise PlanFileError(f"{path}: not written, since {', '.join(bad)} cannot be carried out")
    saved = SavedPlan(plans.plans, tuple(map(written, subjects)))
    write_plan(path, saved)


def load(path: Path) -> SavedPlan:
    """The plans of a file; raises `PlanFileError`."""
    saved = read_plan(path, SavedPlan, "a plan", f"`knfleet plan --save {path}`")
    if saved.format != FORMAT or len(saved.plans) != len(saved.manifests):
        raise PlanFileError(f"{path} is a plan of another version of knfleet; {AGAIN}")
    return saved


async def checked(planner: Planner, saved: SavedPlan) -> list[PlanSubject]:
    """The custom resources to write, if the world is still the one of the plans.

    Raises `PlanOutdated`, which says what is different; nothing is written.
    """
    subjects = [await of_manifest(planner.hub, manifest) for manifest in saved.manifests]
    now = await planner.plans(subjects)
    moved = [
        f"{before.title}: {text}"
        for before, after in zip(saved.plans, now.plans, strict=True)
        for text in movements(before, after)
    ]
    if moved:
        raise PlanOutdated(
            f"the plan is not carried out, since the world moved: {'; '.join(moved)}"
        )
    return subjects


def movements(before: ResourcePlan, after: ResourcePlan) -> list[str]:
    """What of all that a plan rests on is different now, in words."""
    if after.problems:
        return [f"{problem}; fix it, then {AGAIN}" for problem in after.problems]
    old, new = before.seal, after.seal
    if old.custom_resource != new.custom_resource:
        return [f"{what_happened(old.custom_resource, new.custom_resource)}; {AGAIN}"]
    found: list[str] = []
    if old.desired != new.desired:
        found.append(f"the release files are not those that the plan was made with; {AGAIN}")
    if others := touched(old.objects, new.objects):
        more = len(others) - NAMES_SHOWN
        names = ", ".join(others[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        found.append(f"on {before.target}, {names} changed since the plan was made; {AGAIN}")
    return found


def what_happened(before: str, after: str) -> str:
    """What became of a custom resource."""
    if not before:
        return "it was created since the plan was made"
    return "it was changed since the plan was made" if after else "it was deleted"


def touched(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The objects that are not as they were, that are new, or gone."""
    every = {**before, **after}
    return sorted(name for name in every if before.get(name) != after.get(name))


async def write(hub: Client, subject: PlanSubject) -> Object:
    """Write a custom resource, unless it was changed meanwhile; raises `PlanOutdated`."""
    resource = subject.kind.resource
    try:
        if subject.live is None:
            return await hub.create(resource, written(subject))
        return await hub.patch(resource, Key.of(subject.live), guarded_patch_of(subject))
    except AlreadyExists:
        raise PlanOutdated(f"{title(subject)} was created just now; {AGAIN}") from None
    except NotFound:
        if subject.live is None:
            raise
        raise PlanOutdated(f"{title(subject)} was deleted just now; {AGAIN}") from None
    except Invalid:
        # A test of a JSON patch that fails is answered like this, too, and not distinguished.
        if not await is_moved(hub, subject):
            raise
        raise PlanOutdated(f"{title(subject)} was changed just now; {AGAIN}") from None


async def is_moved(hub: Client, subject: PlanSubject) -> bool:
    """Whether a custom resource is not what it was."""
    key = Key.of(subject.manifest)
    now = await hub.get(subject.kind.resource, key.name, key.namespace)
    return resource_stamp(now) != resource_stamp(subject.live)
