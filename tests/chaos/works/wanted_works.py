"""What is wanted of a cluster: its works, and the objects in each of them. Pure."""

from random import Random

from msgspec import Struct, field

from knfleet.api.meta import Object
from knfleet.api.work.manifestwork import WORKS

PLACE = "chaos-works"
"""The namespace of all objects."""
MOST_WORKS = 8
MOST_OBJECTS = 4


class WantedWork(Struct):
    """One work."""

    objects: dict[str, dict[str, str]]
    """The data of each ConfigMap, by name."""
    uids: dict[str, str] = field(default_factory=dict[str, str])
    """UIDs of objects that must stay the same: nothing but the agent touched them."""


class WantedWorks:
    """The works of one cluster."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.works: dict[str, WantedWork] = {}
        self.count = 0

    def drawn(self, random: Random) -> tuple[str, WantedWork]:
        """A new work, which is not wanted yet."""
        self.count += 1
        name = f"w{self.count}"
        names = [f"{name}-{letter}" for letter in "abcd"[: random.randint(1, MOST_OBJECTS)]]
        return name, WantedWork({each: {"value": str(random.randrange(10**6))} for each in names})

    def changed(self, name: str, random: Random) -> dict[str, dict[str, str]]:
        """Other objects for a work: some stay, one goes or comes, one has other data."""
        objects = dict(self.works[name].objects)
        chosen = random.choice(sorted(objects))
        if random.random() < 0.4 and len(objects) > 1:
            del objects[chosen]
        else:
            objects[chosen] = {"value": str(random.randrange(10**6))}
        missing = [f"{name}-{letter}" for letter in "abcd" if f"{name}-{letter}" not in objects]
        if missing and random.random() < 0.4:
            objects[missing[0]] = {"value": str(random.randrange(10**6))}
        return objects

    def all_objects(self) -> dict[str, dict[str, str]]:
        """The data of every object, by name."""
        return {key: data for work in self.works.values() for key, data in work.objects.items()}


def config_map(name: str, data: dict[str, str]) -> Object:
    """A ConfigMap in the place of all objects."""
    meta = {"name": name, "namespace": PLACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def work_manifest(cluster: str, name: str, objects: dict[str, dict[str, str]]) -> Object:
    """A work with some objects."""
    return {
        "apiVersion": WORKS.api_version,
        "kind": WORKS.kind,
        "metadata": {"name": name, "namespace": cluster},
        "spec": {"workload": {"manifests": manifests(objects)}},
    }


def manifests(objects: dict[str, dict[str, str]]) -> list[Object]:
    """The manifests of a work."""
    return [config_map(name, data) for name, data in sorted(objects.items())]
