"""Which versions of CRDs a release drops while objects may be stored in them."""

from knfleet.api.meta import Object
from knfleet.view.knativefleet.fleet_images import ImageNeed, fleet_images
from knfleet.view.knativefleet.stored_versions import ReleaseCrds, dropped_versions, release_crds

CRD = "things.example.com"


def definition(*versions: str) -> Object:
    """A CRD; the first version is the stored one."""
    found = [{"name": name, "storage": name == versions[0]} for name in versions]
    return {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD},
        "spec": {"versions": found},
    }


def job(*crds: str) -> Object:
    """The Job that migrates CRDs."""
    pod = {"spec": {"containers": [{"args": list(crds)}]}}
    name = "storage-version-migration-small"
    return {"kind": "Job", "metadata": {"name": name}, "spec": {"template": pod}}


def release(version: str, *objects: Object) -> ReleaseCrds:
    return release_crds(f"small {version}", objects)


OLD = release("1.1", definition("v1beta1", "v1"))
BOTH = release("1.2", definition("v1", "v1beta1"), job(CRD))
NEW = release("1.3", definition("v1"))


def test_a_version_that_objects_may_be_stored_in_cannot_be_dropped() -> None:
    (text,) = dropped_versions({CRD: ("v1beta1", "v1")}, OLD, [NEW])

    assert text.startswith(f"small 1.3: CustomResourceDefinition {CRD} has no version v1beta1 any")
    assert "write its objects again in v1, and remove v1beta1 from its status" in text


def test_the_migration_of_the_release_before_is_named() -> None:
    (text,) = dropped_versions({CRD: ("v1beta1",)}, BOTH, [NEW])

    assert "in v1, as the Job storage-version-migration-small of small 1.2 does, and" in text


def test_a_release_on_the_way_that_migrates_makes_the_next_one_possible() -> None:
    """One minor version at a time; a release without the Job leaves versions stored."""
    idle = release("1.2", definition("v1", "v1beta1"))

    assert dropped_versions({CRD: ("v1beta1",)}, OLD, [BOTH, NEW]) == []
    assert len(dropped_versions({CRD: ("v1beta1",)}, OLD, [idle, NEW])) == 1


def test_what_is_not_there_or_was_migrated_is_no_obstacle() -> None:
    assert dropped_versions({}, None, [NEW]) == []
    assert dropped_versions({CRD: ()}, None, [BOTH, NEW]) == []
    assert dropped_versions({CRD: ("v1",)}, BOTH, [NEW]) == []


def test_images_are_new_when_one_cluster_lacks_them() -> None:
    """Each is listed once, with its registry and the releases that need it."""
    both, own = "busybox:1", "registry.example.com:5000/a/b@sha256:" + "0" * 64
    has = ImageNeed("serving 1.3", frozenset({both, own}), frozenset({both, own}))
    lacks = ImageNeed("eventing 1.3", frozenset({own, "Bad Name"}), frozenset())

    found = fleet_images([has, lacks])

    assert [(each.image, each.registry, each.is_new) for each in found] == [
        ("Bad Name", "unknown", True),
        (both, "docker.io", False),
        (own, "registry.example.com:5000", True),
    ]
    assert found[2].needed_by == ["eventing 1.3", "serving 1.3"]
