"""Works of add-ons: names, places, shares, and what is left behind."""

import pytest

from knfleet.api.addon.managedclusteraddon import ManagedClusterAddOn
from knfleet.api.addon.names import DELETION_ORPHAN, HOSTED_LOCATION, HOSTING_CLUSTER, PRE_DELETE
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.api.work.manifestwork import ManifestWorkSpec
from knfleet.hub.addon.delivery.addon_works import (
    MOST_MANIFESTS,
    WorksError,
    delivery,
    deploy_works,
    surplus,
    work_prefix,
)
from knfleet.hub.addon.delivery.template import RenderedAddOn
from tests.support import addons


def addon(**annotations: str) -> ManagedClusterAddOn:
    """Add-on `hello` on cluster `c1`."""
    manifest = addons.addon("hello", "c1")
    manifest["metadata"] |= {"uid": "u1", "annotations": annotations}
    return decode(manifest, ManagedClusterAddOn)


def annotated(manifest: Object, **annotations: str) -> Object:
    """A manifest with annotations."""
    metadata = {**manifest["metadata"], "annotations": annotations}
    return {**manifest, "metadata": metadata}


def names(work: Object) -> list[str]:
    """The names of a work's manifests."""
    return [each["metadata"]["name"] for each in work["spec"]["workload"]["manifests"]]


SPEC = ManifestWorkSpec()


def test_a_work_is_named_labelled_and_owned():
    (work,) = deploy_works(addon(), SPEC, [addons.config_map("a")], [])

    meta = work["metadata"]
    assert (meta["namespace"], meta["name"]) == ("c1", "addon-hello-deploy-0")
    assert meta["labels"] == {"open-cluster-management.io/addon-name": "hello"}
    assert [(each["kind"], each["uid"]) for each in meta["ownerReferences"]] == [
        ("ManagedClusterAddOn", "u1")
    ]
    assert "annotations" not in meta


def test_a_thousand_manifests_are_divided_and_stay_where_they_are():
    manifests = [addons.config_map(f"m{number}") for number in range(1000)]
    works = deploy_works(addon(), SPEC, manifests, [])
    assert [len(names(each)) for each in works] == [MOST_MANIFESTS] * 5

    fewer = deploy_works(addon(), SPEC, manifests[1:], works)

    assert [names(each) for each in fewer[1:]] == [names(each) for each in works[1:]]
    gone = deploy_works(addon(), SPEC, manifests[:200], works)
    assert [each["metadata"]["name"] for each in gone] == ["addon-hello-deploy-0"]
    assert [key.name for key in surplus(works, gone, work_prefix(addon(), hosting=False))] == [
        f"addon-hello-deploy-{number}" for number in range(1, 5)
    ]


def test_large_manifests_are_divided_and_too_large_ones_named():
    large = [addons.config_map(f"m{number}", text="x" * 300_000) for number in range(3)]
    assert len(deploy_works(addon(), SPEC, large, [])) == 3

    with pytest.raises(WorksError, match="ConfigMap big has 600105"):
        deploy_works(addon(), SPEC, [addons.config_map("big", text="x" * 600_000)], [])
    with pytest.raises(WorksError, match="ConfigMap a is in the template twice"):
        deploy_works(addon(), SPEC, [addons.config_map("a"), addons.config_map("a")], [])


def test_namespaces_are_only_made_and_what_is_marked_is_left_behind():
    marked = annotated(addons.config_map("kept"), **{DELETION_ORPHAN: ""})

    (work,) = deploy_works(addon(), SPEC, [marked], [], namespaces=["own"])

    option = work["spec"]["deleteOption"]
    assert option["propagationPolicy"] == "SelectivelyOrphan"
    assert option["selectivelyOrphans"]["orphaningRules"] == [
        {"resource": "configmaps", "name": "kept", "namespace": "default"},
        {"resource": "namespaces", "name": "own"},
    ]
    assert {"type": "CreateOnly"} in [
        each.get("updateStrategy") for each in work["spec"]["manifestConfigs"]
    ]


def test_manifests_of_a_hosted_add_on_go_to_their_places():
    manifests = (
        addons.config_map("here"),
        annotated(addons.config_map("there"), **{HOSTED_LOCATION: "hosting"}),
        annotated(addons.config_map("nowhere"), **{HOSTED_LOCATION: "none"}),
    )
    rendered = RenderedAddOn(manifests, "default")

    hosted = delivery(rendered, hosted=True)
    (work,) = deploy_works(addon(**{HOSTING_CLUSTER: "h1"}), SPEC, hosted.hosting, [], hosting=True)

    assert [each["metadata"]["name"] for each in hosted.managed] == ["here"]
    assert (work["metadata"]["namespace"], work["metadata"]["name"]) == (
        "h1",
        "addon-hello-deploy-hosting-c1-0",
    )
    assert work["metadata"]["labels"]["open-cluster-management.io/addon-namespace"] == "c1"
    assert "ownerReferences" not in work["metadata"]
    assert len(delivery(rendered, hosted=False).managed) == 3
    wrong = annotated(addons.config_map("odd"), **{HOSTED_LOCATION: "elsewhere"})
    with pytest.raises(WorksError, match=r"ConfigMap odd: .* is 'elsewhere'"):
        delivery(RenderedAddOn((wrong,), "default"), hosted=True)


def test_only_jobs_and_pods_are_hooks():
    job: Object = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "bye"}}
    marks = {PRE_DELETE: ""}

    divided = delivery(
        RenderedAddOn((annotated(job, **marks), annotated(addons.config_map("a"), **marks)), "x"),
        hosted=False,
    )

    assert [each["kind"] for each in divided.managed_hooks] == ["Job"]
    assert [each["kind"] for each in divided.managed] == ["ConfigMap"]
