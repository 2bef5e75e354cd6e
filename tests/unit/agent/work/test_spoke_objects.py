"""What is known of the objects of works, when answers and watches overtake each other."""

from typing import cast

from knfleet.agent.work.observed.objects import SpokeObjects
from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Key, Object
from knfleet.kube.cache.store import StoreChange
from knfleet.kube.client.verbs import Client

KEY = Key("default", "a")


def config_map(version: int, uid: str = "1") -> Object:
    """An object in one of its versions."""
    meta = {"name": KEY.name, "namespace": KEY.namespace, "uid": uid}
    return {"metadata": {**meta, "resourceVersion": str(version)}}


def ended(objects: SpokeObjects, version: int) -> None:
    """Have a watch show the end of the object."""
    last = objects.reduce(CONFIG_MAPS, config_map(version))
    objects.changed(CONFIG_MAPS, StoreChange("deleted", KEY, last, None))


async def test_an_answer_that_comes_after_the_end_of_an_object_does_not_bring_it_back():
    """Nothing would show its end once more."""
    objects = SpokeObjects(cast("Client", None))
    objects.saw(CONFIG_MAPS, config_map(10))

    ended(objects, 12)
    objects.saw(CONFIG_MAPS, config_map(11))

    assert objects.get(CONFIG_MAPS, KEY) is None


async def test_an_object_that_lost_its_label_is_still_there():
    """A watch that selects by label shows this as its end."""
    objects = SpokeObjects(cast("Client", None))
    objects.saw(CONFIG_MAPS, config_map(10))

    ended(objects, 11)
    objects.saw(CONFIG_MAPS, config_map(11))

    assert objects.get(CONFIG_MAPS, KEY) is not None


async def test_an_object_that_is_made_anew_is_known():
    """It has the name of the old one, and a UID of its own."""
    objects = SpokeObjects(cast("Client", None))
    ended(objects, 12)

    objects.saw(CONFIG_MAPS, config_map(13, uid="2"))

    record = objects.get(CONFIG_MAPS, KEY)
    assert record is not None
    assert record.state.uid == "2"
