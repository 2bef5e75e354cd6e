"""What the controller of fleets knows: caches of the hub's objects, newer than any watch.

An answer to a write is kept until the watch shows it or something newer, so that a pass never
decides on a child that it has itself replaced.
"""

from collections.abc import Iterable

from knfleet.api.fleet.fleet_names import FLEET_LABEL, KNATIVE_FLEETS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import Component
from knfleet.api.meta import Key, Object
from knfleet.hub.context import HubContext
from knfleet.hub.knativefleet.plan.child_state import Child, read_child
from knfleet.hub.knativefleet.plan.fleet_clusters import Member, member
from knfleet.hub.knativefleet.template.fleet_template import (
    COMPONENTS,
    KINDS,
    DesiredChildren,
    desired,
)
from knfleet.hub.knativefleet.template.revisions import (
    CONTROLLER_REVISIONS,
    Revision,
    fleet_of,
    read_revision,
)
from knfleet.hub.knativefleet.template.variables import ProfileFacts
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.operator.kinds import BY_PLACE, place_index, place_of

BY_FLEET = "fleet"


class FleetCache:
    """Everything that is read of the hub for fleets."""

    def __init__(self, context: HubContext) -> None:
        informers = context.informers
        self.namespace = context.configuration.namespace
        self.fleets = informers.shared(KNATIVE_FLEETS, required=False)
        self.profiles = informers.shared(PROFILES)
        self.placements = informers.placements
        self.decisions = informers.decisions
        self.revisions = informers.shared(
            CONTROLLER_REVISIONS,
            self.namespace,
            labels=FLEET_LABEL,
            indexes={BY_FLEET: fleet_of},
            required=False,
        )
        self.children: dict[Component, Informer] = {
            component: informers.shared(
                KINDS[component].resource,
                indexes={BY_FLEET: fleet_of, BY_PLACE: place_index},
                required=False,
            )
            for component in COMPONENTS
        }
        self.answers: dict[tuple[str, Key], Object] = {}
        """By kind and key: an object as the server answered a write."""
        self.unseen: dict[tuple[str, str], list[Object]] = {}
        """By kind and place: answers about objects that the watch does not show yet."""
        self.watched = {
            each.resource.kind: each
            for each in (self.fleets, self.revisions, *self.children.values())
        }
        self.read: dict[str, tuple[str, Child]] = {}
        """By uid: children as they were read, with their resource version."""
        self.members: dict[Key, tuple[tuple[object, object], Member]] = {}
        """By profile: clusters as they were read, with the version of the profile."""
        self.meanings: dict[tuple[str, str, str], tuple[ProfileFacts, DesiredChildren]] = {}

    @property
    def is_synced(self) -> bool:
        """Whether everything was listed once."""
        own = (self.fleets, self.revisions, *self.children.values())
        return all(informer.synced.is_set() for informer in own)

    def remember(self, manifest: Object) -> None:
        """Keep an answer until the watch shows it."""
        manifest["metadata"].pop("managedFields", None)
        self.answers[manifest["kind"], Key.of(manifest)] = manifest

    def newest(self, informer: Informer, key: Key) -> Object | None:
        """An object as the watch shows it, or as a write was answered if that is newer."""
        seen = informer.get(key)
        index = (informer.resource.kind, key)
        answer = self.answers.get(index)
        if answer is None:
            return seen
        if seen is not None and version(seen) >= version(answer):
            del self.answers[index]
            return seen
        if seen is None and informer.resource_version and is_behind(informer, answer):
            # It was seen, and is gone.
            del self.answers[index]
            return None
        return answer

    def current(self, informer: Informer, found: Iterable[Object]) -> list[Object]:
        """Objects of the watch, with newer answers in their places, and answers that are new."""
        keys = [Key.of(each) for each in found]
        newest = [self.newest(informer, key) for key in keys]
        return [each for each in newest if each is not None]

    def fleet(self, key: Key) -> Object | None:
        """A fleet."""
        return self.newest(self.fleets, key)

    def fleet_names(self) -> frozenset[str]:
        """The names of all fleets."""
        return frozenset(key.name for key in self.fleets.store.objects)

    def drop(self, change: StoreChange) -> None:
        """Forget what was read of an object that is gone."""
        if change.new is None and change.old is not None:
            self.members.pop(change.key, None)
            self.read.pop(change.old["metadata"].get("uid", ""), None)

    def begin_pass(self) -> None:
        """Drop answers that the watch shows, and find those that it does not by their place."""
        self.unseen.clear()
        for kind, key in list(self.answers):
            informer = self.watched.get(kind)
            answer = None if informer is None else self.newest(informer, key)
            if informer is not None and answer is not None and informer.get(key) is None:
                index = (kind, "" if informer is self.revisions else place_of(answer))
                self.unseen.setdefault(index, []).append(answer)

    def of_place(self, component: Component, place: str) -> list[Object]:
        """The custom resources of a component for a profile."""
        informer = self.children[component]
        seen = self.current(informer, informer.by_index(BY_PLACE, place))
        return [*seen, *self.unseen.get((informer.resource.kind, place), ())]

    def of_fleet(self, component: Component, fleet: str) -> list[Object]:
        """The children of a fleet."""
        informer = self.children[component]
        return self.current(informer, informer.by_index(BY_FLEET, fleet))

    def child(self, manifest: Object, component: Component) -> Child:
        """What a child says, read once for each version."""
        meta = manifest["metadata"]
        known = self.read.get(meta["uid"])
        if known is None or known[0] != meta["resourceVersion"]:
            known = (meta["resourceVersion"], read_child(manifest, component))
            self.read[meta["uid"]] = known
        return known[1]

    def revisions_of(self, fleet: str, uid: str) -> dict[str, Revision]:
        """The revisions of a fleet, by hash; not those of an older fleet of the same name."""
        seen = self.current(self.revisions, self.revisions.by_index(BY_FLEET, fleet))
        unseen = self.unseen.get((CONTROLLER_REVISIONS.kind, ""), ())
        current = [*seen, *(each for each in unseen if fleet_of(each) == [fleet])]
        return {each.hash: each for each in map(read_revision, current) if each.owner == uid}

    def member(self, name: str, namespace: str, profile: Object | None) -> Member:
        """What a profile says of a cluster, read once for each version."""
        if profile is None:
            return member(name, namespace, None)
        meta = profile["metadata"]
        index, stamp = Key(namespace, name), (meta.get("uid"), meta.get("resourceVersion"))
        known = self.members.get(index)
        if known is None or known[0] != stamp:
            known = (stamp, member(name, namespace, profile))
            self.members[index] = known
        return known[1]

    def meaning(
        self, fleet: str, revision: Revision, facts: ProfileFacts, profile: Key
    ) -> DesiredChildren:
        """What a revision means for a cluster, computed once for the same facts."""
        index = (fleet, revision.hash, facts.name)
        known = self.meanings.get(index)
        if known is None or known[0] != facts:
            known = (facts, desired(revision.content, facts, profile))
            self.meanings[index] = known
        return known[1]

    def forget(self, fleet: str, revisions: Iterable[str] = (), *, keep: bool = False) -> None:
        """Drop what is kept of a fleet; with `keep`, all but some revisions."""
        kept = set(revisions)
        for index in [each for each in self.meanings if each[0] == fleet]:
            if not keep or index[1] not in kept:
                del self.meanings[index]


def version(manifest: Object) -> int:
    """The resource version, which grows with each write of an object."""
    text = str(manifest["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def is_behind(informer: Informer, answer: Object) -> bool:
    """Whether a watch has passed the moment of an answer."""
    seen = informer.resource_version
    return seen.isdecimal() and int(seen) > version(answer)
