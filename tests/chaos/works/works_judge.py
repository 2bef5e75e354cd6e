"""Whether clusters have what their works want, and nothing else."""

import re

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Object
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORKS
from knfleet.apply.manifest_fields import items
from tests.chaos.works.wanted_works import PLACE
from tests.chaos.works.works_stage import Member, WorksStage
from tests.support.works import conditions

SYSTEM = {"kube-root-ca.crt"}
DRAWN = re.compile(r"w[0-9]+")
"""The names of works that are created by hand; others are made by controllers of the hub."""


async def problems(stage: WorksStage, member: Member) -> list[str]:
    """What of a cluster is not as it is wanted."""
    works = [
        each
        for each in (await stage.client.list(WORKS, member.name)).items
        if DRAWN.fullmatch(each["metadata"]["name"])
    ]
    applied = [
        each
        for each in (await member.client.list(APPLIED_WORKS)).items
        if DRAWN.fullmatch(each["spec"]["manifestWorkName"])
    ]
    objects = (await member.client.list(CONFIG_MAPS, PLACE)).items
    found = {each["metadata"]["name"]: each for each in objects}
    return [
        *work_problems(member, works),
        *record_problems(member, applied),
        *object_problems(member, found),
        *foreign_problems(member, found),
    ]


def work_problems(member: Member, works: list[Object]) -> list[str]:
    """Works that are missing, left over, or not applied."""
    wanted = member.works.works
    there = {each["metadata"]["name"]: each for each in works}
    said = [f"work {name} is still there" for name in sorted(there.keys() - wanted.keys())]
    said += [f"work {name} is missing" for name in sorted(wanted.keys() - there.keys())]
    for name in sorted(there.keys() & wanted.keys()):
        generation = there[name]["metadata"]["generation"]
        for type_ in ("Applied", "Available"):
            condition = conditions(there[name]).get(type_, {})
            seen = (condition.get("status"), condition.get("observedGeneration"))
            if seen != ("True", generation):
                said.append(f"work {name}: {type_} is {seen}, generation {generation}")
    return said


def record_problems(member: Member, applied: list[Object]) -> list[str]:
    """AppliedManifestWorks that are missing, left over, or list other objects."""
    said: list[str] = []
    there = {each["spec"]["manifestWorkName"]: each for each in applied}
    if len(there) != len(applied) or there.keys() != member.works.works.keys():
        said.append(f"AppliedManifestWorks of {sorted(there)}")
    for name, wanted in member.works.works.items():
        resources = items(there.get(name, {}), "status", "appliedResources")
        if sorted(each["name"] for each in resources) != sorted(wanted.objects):
            said.append(f"AppliedManifestWork of {name} lists {len(resources)} objects")
    return said


def object_problems(member: Member, found: dict[str, Object]) -> list[str]:
    """Objects that are missing, left over, different, or made anew without need."""
    said: list[str] = []
    wanted = member.works.all_objects()
    extra = found.keys() - wanted.keys() - member.foreign.keys() - SYSTEM
    said += [f"object {name} is left" for name in sorted(extra)]
    for work in member.works.works.values():
        for name, data in work.objects.items():
            live = found.get(name)
            if live is None:
                said.append(f"object {name} is missing")
                continue
            if live.get("data") != data:
                said.append(f"object {name} has {live.get('data')}, wanted {data}")
            uid = live["metadata"]["uid"]
            if work.uids.setdefault(name, uid) != uid:
                said.append(f"object {name} was deleted and made anew")
    return said


def foreign_problems(member: Member, found: dict[str, Object]) -> list[str]:
    """Objects of others that were touched."""
    return [
        f"foreign object {name} was touched"
        for name, before in member.foreign.items()
        if found.get(name) != before
    ]
