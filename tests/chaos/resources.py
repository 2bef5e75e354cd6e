"""The custom resources of a run: what is installed where, and how people change their minds."""

import copy
from collections.abc import Callable, Sequence
from random import Random

from msgspec import Struct

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.applyset import ApplySet
from testbed.operators import HOME
from tests.support import edits

VERSIONS = ("1.22", "1.23")
KOURIER: Object = {"kourier": {"enabled": True}}
FIRST = {SERVINGS: {"version": "1.23", "ingress": KOURIER}, EVENTINGS: {"version": "1.23"}}
DEPLOYMENTS = {SERVINGS: ("activator", "autoscaler"), EVENTINGS: ("eventing-controller",)}


class Wanted(Struct, frozen=True):
    """One custom resource; it is called like its spoke."""

    resource: Resource
    spoke: str

    @property
    def key(self) -> Key:
        """Where it is on the hub."""
        return Key(HOME[self.resource], self.spoke)

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.resource.kind}/{self.spoke}"

    @property
    def anchor(self) -> Key:
        """The ConfigMap that stands for it on the spoke."""
        return Key(HOME[self.resource], f"{self.resource.kind.lower()}-{self.spoke}-root-owner")

    @property
    def applyset(self) -> ApplySet:
        """The set of its objects."""
        return ApplySet(CONFIG_MAPS, self.anchor)

    def manifest(self, spec: Object, fleet: str) -> Object:
        """The custom resource with a spec."""
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": self.key.name, "namespace": self.key.namespace},
            "spec": {**spec, "clusterProfileRef": {"name": self.spoke, "namespace": fleet}},
        }


def wanted(spokes: Sequence[str]) -> list[Wanted]:
    """Serving and Eventing by turns; every third spoke has both."""
    found: list[Wanted] = []
    for number, spoke in enumerate(spokes):
        if number % 2 == 0:
            found.append(Wanted(SERVINGS, spoke))
        if number % 2 == 1 or number % 3 == 2:
            found.append(Wanted(EVENTINGS, spoke))
    return found


def replicas(resource: Resource) -> edits.Edit:
    """An edit that runs more pods of one Deployment, or marks it."""

    def edit(random: Random, spec: Object) -> None:
        entry = edits.listed(spec, "workloads", random.choice(DEPLOYMENTS[resource]))
        if random.random() < 0.5:
            entry["replicas"] = random.choice([1, 2, 3])
        else:
            entry["labels"] = {"example.com/team": f"t{random.randrange(9)}"}

    return edit


def availability(random: Random, spec: Object) -> None:
    """Run all of it more than once, or not."""
    spec["high-availability"] = {"replicas": random.choice([1, 2])}


def ingress(random: Random, spec: Object) -> None:
    """Install another ingress, or none."""
    spec["ingress"] = {} if spec.get("ingress") else copy.deepcopy(KOURIER)


def changed(resource: Resource, spec: Object, draw: int) -> Object:
    """A spec after somebody changed one thing."""
    random = Random(draw)
    choices: list[Callable[[Random, Object], None]] = [
        edits.config,
        edits.namespace,
        edits.budgets,
        availability,
        replicas(resource),
    ]
    if resource == SERVINGS:
        choices.append(ingress)
    after = copy.deepcopy(spec)
    random.choice(choices)(random, after)
    return after


def upgraded(spec: Object) -> Object:
    """A spec with the other version."""
    other = VERSIONS[0] if spec["version"] == VERSIONS[1] else VERSIONS[1]
    return {**copy.deepcopy(spec), "version": other}
