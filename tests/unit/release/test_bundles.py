"""From a custom resource to the objects that it asks for."""

from pathlib import Path

import pytest
from aiohttp import web

from knfleet.api.meta import Object
from knfleet.kube.yaml import dump_all
from knfleet.release.bundle import shortfall
from knfleet.release.errors import BadManifest, FetchRefused, NotAvailable
from knfleet.release.releases import Releases
from tests.unit.release.test_downloads import serving as answering
from tests.unit.release.tree import (
    config_map,
    core,
    eventing,
    release,
    releases,
    serving,
    tree,
    urls,
    write,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with release files."""
    return tree(tmp_path / "ko")


@pytest.fixture
def there(root: Path, tmp_path: Path) -> Releases:
    """The releases in that folder."""
    return releases(root, tmp_path / "cache")


def names(objects: list[Object]) -> list[str]:
    return [manifest["metadata"]["name"] for manifest in objects]


# Which release


@pytest.mark.parametrize(
    ("wanted", "version"),
    [("", "1.23.0"), ("1.22", "1.22.1"), ("1.22.0", "1.22.0"), ("latest", "1.23.0")],
)
async def test_a_version_is_loaded(there: Releases, root: Path, wanted: str, version: str):
    bundle = await there.load(serving(version=wanted))

    assert bundle.version == version
    assert names(bundle.objects()) == ["serving-crds", "serving-core"]
    assert bundle.paths == (f"{root}/knative-serving/{version}",)


async def test_a_folder_called_latest_is_used_when_asked_for(there: Releases, root: Path):
    release(root, "eventing", "latest")
    for source in ("kafka", "redis"):
        write(root / "eventing-source" / "latest" / source / "s.yaml", config_map(f"new-{source}"))

    bundle = await there.load(eventing(version="latest", source={"kafka": {"enabled": True}}))

    assert bundle.version == "latest"
    assert names(bundle.objects())[-1] == "new-kafka"


@pytest.mark.parametrize("wanted", ["1.20", "1.23.7", "v1.23", "../../ko/knative-serving/1.23.0"])
async def test_a_version_that_is_not_there_is_told_with_those_that_are(
    there: Releases, wanted: str
):
    with pytest.raises(NotAvailable) as caught:
        await there.load(serving(version=wanted))

    message = str(caught.value)
    assert message.startswith(
        f"the manifests of the target version {wanted} are not available to this release"
    )
    assert "1.23.0, 1.22.1, 1.22.0" in message or "without the leading v" in message


async def test_an_empty_folder_is_an_error_and_not_a_crash(tmp_path: Path):
    with pytest.raises(NotAvailable, match="it contains no release files"):
        await releases(tmp_path / "none", tmp_path / "cache").load(serving())


async def test_a_release_with_a_missing_file_is_refused(there: Releases, root: Path):
    (root / "knative-serving" / "1.23.0" / "1-crds.yaml").unlink()

    with pytest.raises(BadManifest, match=r"1-\*\.yaml missing\); get it again"):
        await there.load(serving())


async def test_a_release_without_objects_is_refused(there: Releases, root: Path):
    for name in ("1-crds.yaml", "2-core.yaml"):
        (root / "knative-serving" / "1.23.0" / name).write_text("---\n# nothing\n---\n")

    with pytest.raises(BadManifest, match="there is no resource available in the target manifests"):
        await there.load(serving())


async def test_malformed_yaml_is_told_with_file_and_line(there: Releases, root: Path):
    file = root / "knative-serving" / "1.23.0" / "2-core.yaml"
    file.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: [}\n")

    with pytest.raises(BadManifest, match=rf"{file}, line 3: .*correct the file"):
        await there.load(serving())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: ConfigMap\nmetadata: {name: a}", "has no apiVersion"),
        ("apiVersion: v1\nmetadata: {name: a}", "has no kind"),
        ("apiVersion: v1\nkind: ConfigMap", r"has no metadata\.name"),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: [b]}",
            "labels is not a map",
        ),
        ("apiVersion: v1\nkind: List\nitems: [7]", "is not a Kubernetes object"),
    ],
)
async def test_what_is_no_object_is_refused(
    there: Releases, tmp_path: Path, text: str, problem: str
):
    file = tmp_path / "bad.yaml"
    file.write_text(text)

    with pytest.raises(BadManifest, match=rf"bad\.yaml: object 1.*{problem}"):
        await there.load(serving(version="1.23", manifests=urls(file)))


# Plugins


@pytest.mark.parametrize(
    ("ingress", "plugins"),
    [
        ({}, []),
        ({"istio": {"enabled": True}}, ["istio"]),
        ({"kourier": {"enabled": True}, "contour": {"enabled": True}}, ["contour", "kourier"]),
        ({"gateway-api": {"enabled": True}}, ["gateway-api"]),
    ],
)
async def test_ingress_plugins_of_the_minor_version_are_added(
    there: Releases, root: Path, ingress: Object, plugins: list[str]
):
    bundle = await there.load(serving(version="1.22.0", ingress=ingress))

    assert names(bundle.objects())[2:] == [f"net-{plugin}" for plugin in plugins]
    paths = ",".join(f"{root}/ingress/1.22/{plugin}" for plugin in plugins)
    assert bundle.paths[1:] == ((paths,) if paths else ())


async def test_istio_is_assumed_when_nothing_is_said_of_ingress(there: Releases):
    bundle = await there.load(serving(ingress=None))

    assert names(bundle.objects())[2:] == ["net-istio"]


async def test_sources_are_added_in_their_order(there: Releases, root: Path):
    source = {name: {"enabled": True} for name in ("redis", "kafka", "ceph")}

    bundle = await there.load(eventing(source=source))

    assert names(bundle.objects())[2:] == ["ceph", "kafka", "redis"]
    assert bundle.paths[1] == ",".join(
        f"{root}/eventing-source/1.23/{name}" for name in ("ceph", "kafka", "redis")
    )


async def test_the_security_guard_that_fits_is_added_and_not_recorded(there: Releases):
    bundle = await there.load(serving(security={"securityGuard": {"enabled": True}}))

    assert names(bundle.objects())[2:] == ["guard"]
    assert len(bundle.paths) == 1


async def test_a_version_without_a_security_guard_is_told(there: Releases, root: Path):
    release(root, "serving", "1.7.0")

    with pytest.raises(NotAvailable) as caught:
        await there.load(serving(version="1.7", security={"securityGuard": {"enabled": True}}))

    assert str(caught.value) == (
        "the current version of Knative Serving is 1.7. You need to install the version 1.8 or "
        "above to support the security guard"
    )


async def test_a_plugin_that_is_not_there_is_an_error(there: Releases, root: Path):
    release(root, "serving", "1.24.0")

    with pytest.raises(NotAvailable, match=r"ingress has no version '1\.24'; it has 1\.23, 1\.22"):
        await there.load(serving(version="1.24", ingress={"kourier": {"enabled": True}}))


async def test_a_plugin_that_is_not_there_does_not_matter_to_own_manifests(
    there: Releases, tmp_path: Path
):
    file = write(tmp_path / "own.yaml", config_map("own"), core("webhook"))
    kourier = {"kourier": {"enabled": True}}

    bundle = await there.load(serving(version="1.24", manifests=urls(file), ingress=kourier))

    assert names(bundle.objects()) == ["own", "webhook"]
    assert bundle.paths == (str(file),)


# Manifests of the user's own


async def test_own_manifests_replace_the_release(there: Releases, tmp_path: Path):
    one = write(tmp_path / "v1.23" / "one.yaml", config_map("one", version="1.23.0"))
    write(tmp_path / "more" / "b.yaml", core("webhook"))
    write(tmp_path / "more" / "a.yml", config_map("a"))
    write(tmp_path / "more" / "below" / "c.yaml", config_map("c"))
    (tmp_path / "more" / "README.md").write_text("not a manifest")
    given = [f"{tmp_path}/v${{VERSION}}/one.yaml", f"{tmp_path}/more", str(one)]

    bundle = await there.load(serving(version="1.23", manifests=urls(*given)))

    assert names(bundle.objects()) == ["one", "a", "webhook", "one"]
    assert bundle.paths == (f"{one},{tmp_path}/more,{one}",)


async def test_a_comma_separates_several_in_one(there: Releases, tmp_path: Path):
    one = write(tmp_path / "one.yaml", config_map("one"))
    two = write(tmp_path / "two.yaml", core("webhook"))

    bundle = await there.load(serving(version="1.23", manifests=urls(f"{two},{one}")))

    assert names(bundle.objects()) == ["webhook", "one"]


@pytest.mark.parametrize("field", ["manifests", "additionalManifests"])
async def test_only_so_many_addresses_are_read(there: Releases, tmp_path: Path, field: str):
    one = write(tmp_path / "one.yaml", config_map("one"))
    given: Object = {field: urls(*[str(one)] * 40, ",".join([str(one)] * 11))}

    with pytest.raises(BadManifest, match="51 addresses, more than 50"):
        await there.load(serving(version="1.23", **given))


async def test_all_addresses_together_have_a_limit(there: Releases, tmp_path: Path):
    content = {"text": "x" * 7_000_000}
    files = [
        write(tmp_path / f"{name}.yaml", config_map(name) | {"data": content})
        for name in "abcdefghij"
    ]

    with pytest.raises(BadManifest, match="more than 64 MiB together"):
        await there.load(serving(version="1.23", manifests=urls(*files)))


async def test_a_file_address_is_refused(there: Releases, tmp_path: Path):
    one = write(tmp_path / "one.yaml", config_map("one"))

    with pytest.raises(FetchRefused, match="give an http or https address, or a path"):
        await there.load(serving(version="1.23", manifests=urls(f"file://{one}")))


async def test_a_list_is_taken_apart(there: Releases, tmp_path: Path):
    listed = {"apiVersion": "v1", "kind": "List", "items": [config_map("a"), core("webhook")]}
    file = write(tmp_path / "list.yaml", listed)

    bundle = await there.load(serving(version="1.23", manifests=urls(file)))

    assert names(bundle.objects()) == ["a", "webhook"]


async def test_manifests_of_another_minor_version_are_refused(there: Releases, tmp_path: Path):
    file = write(tmp_path / "old.yaml", config_map("old", version="1.21.2"))

    with pytest.raises(BadManifest) as caught:
        await there.load(serving(version="1.23.0", manifests=urls(file)))

    assert str(caught.value) == (
        "the version of the manifests v1.21.2 of the component old does not match the target "
        "version of the operator CR v1.23.0"
    )


async def test_manifests_of_the_other_component_are_refused(there: Releases, root: Path):
    folder = root / "knative-eventing" / "1.23.0"

    with pytest.raises(BadManifest, match="belong to knative-eventing, not to knative-serving"):
        await there.load(serving(version="1.23", manifests=urls(folder)))


async def test_manifests_that_hold_no_serving_are_refused(there: Releases, tmp_path: Path):
    """Upstream's words; the Deployment may be among the additional manifests, as there."""
    wrong = write(tmp_path / "wrong.yaml", config_map("wrong"))
    right = write(tmp_path / "right.yaml", core("webhook"))

    with pytest.raises(
        BadManifest, match="webhook deployment not found in manifest; searched"
    ) as caught:
        await there.load(serving(version="1.23", manifests=urls(wrong)))
    found = await there.load(
        serving(version="1.23", manifests=urls(wrong), additionalManifests=urls(right))
    )
    other = await there.load(eventing(version="1.23", manifests=urls(wrong)))

    assert str(wrong) in str(caught.value)
    assert names(found.objects()) == ["wrong", "webhook"]
    assert names(other.objects()) == ["wrong"]


@pytest.mark.parametrize(
    ("objects", "lack"),
    [
        ([config_map("a")], "eventing-webhook deployment not found in manifest"),
        ([core("webhook")], "eventing-webhook deployment not found in manifest"),
        ([core("eventing-webhook")], "has the label app.kubernetes.io/name: knative-eventing"),
        ([core("eventing-webhook"), config_map("a", component="knative-eventing")], ""),
    ],
)
async def test_a_component_is_known_by_its_webhook_and_its_label(
    there: Releases, tmp_path: Path, objects: list[Object], lack: str
):
    file = write(tmp_path / "own.yaml", *objects)

    bundle = await there.load(eventing(version="1.23", manifests=urls(file)))

    found = shortfall(bundle.manifests, "eventing")
    assert lack in found
    assert bool(lack) == bool(found)


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("/no/such/file.yaml", NotAvailable, "there is no such file or folder"),
        ("/proc/self/environ", BadManifest, "the name of a manifest ends with"),
        ("gopher://files.example.test/a", FetchRefused, "give an http or https address"),
    ],
)
async def test_a_place_that_cannot_be_read_is_told(
    there: Releases, url: str, error: type[Exception], message: str
):
    with pytest.raises(error, match=message):
        await there.load(serving(version="1.23", manifests=urls(url)))


async def test_addresses_are_downloaded_with_the_version_in_them(there: Releases):
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text=dump_all([config_map("far", version="1.22.1"), core("webhook")]))

    async with answering(handler) as server:
        wanted = serving(version="v1.22.1", manifests=urls(f"{server}/${{VERSION}}/a.yaml"))
        bundle = await there.load(wanted)

    assert asked == ["/v1.22.1/a.yaml"]
    assert names(bundle.objects()) == ["far", "webhook"]
    assert bundle.paths == (f"{server}/v1.22.1/a.yaml",)


async def test_a_password_in_an_address_is_in_no_message(there: Releases):
    async def handler(_: web.Request) -> web.Response:
        return web.Response(text="# nothing")

    async with answering(handler) as server:
        address = server.replace("://", "://user:secret@") + "/a.yaml?token=secret"
        with pytest.raises(BadManifest, match="there is no resource available") as caught:
            await there.load(serving(version="1.23", manifests=urls(address)))

    assert "secret" not in str(caught.value)


# Additional manifests


async def test_additional_manifests_come_last_and_replace_their_equals(
    there: Releases, root: Path, tmp_path: Path
):
    one = write(tmp_path / "one.yaml", config_map("serving-crds", mine="yes"), config_map("new"))
    two = write(tmp_path / "two.yaml", config_map("newer"))

    bundle = await there.load(serving(additionalManifests=urls(one, two)))

    assert names(bundle.objects()) == ["serving-core", "serving-crds", "new", "newer"]
    assert bundle.objects()[1]["data"] == {"mine": "yes"}
    assert bundle.paths == (f"{root}/knative-serving/1.23.0", f"{one},{two}")


async def test_a_generated_name_replaces_only_the_same_generated_name(
    there: Releases, root: Path, tmp_path: Path
):
    def job(prefix: str) -> Object:
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"generateName": prefix},
        }

    write(root / "knative-serving" / "1.23.0" / "3-jobs.yaml", job("clean-"), job("migrate-"))
    file = write(tmp_path / "job.yaml", job("clean-"))

    bundle = await there.load(serving(additionalManifests=urls(file)))

    found = [m["metadata"]["generateName"] for m in bundle.objects() if m["kind"] == "Job"]
    assert found == ["migrate-", "clean-"]


async def test_additional_manifests_have_their_own_errors(there: Releases, tmp_path: Path):
    with pytest.raises(NotAvailable) as caught:
        await there.load(serving(additionalManifests=urls(tmp_path / "gone.yaml")))

    assert str(caught.value) == f"{tmp_path}/gone.yaml: there is no such file or folder"


async def test_own_and_additional_manifests_are_recorded_apart(there: Releases, tmp_path: Path):
    own = write(tmp_path / "own.yaml", core("webhook"))
    more = write(tmp_path / "more.yaml", config_map("more"))

    bundle = await there.load(
        serving(version="1.23", manifests=urls(own), additionalManifests=urls(more))
    )

    assert bundle.paths == (str(own), str(more))


# What is installed


async def test_what_is_installed_is_read_from_the_status(there: Releases, root: Path):
    paths = [f"{root}/knative-serving/1.22.0", f"{root}/ingress/1.22/istio"]

    objects = await there.installed(serving(status={"manifests": paths, "version": "1.22.0"}))

    assert names(objects) == ["serving-crds", "serving-core", "net-istio"]


async def test_paths_of_another_image_are_found_here(there: Releases):
    paths = ["/var/run/ko/knative-eventing/1.22.1", "/var/run/ko/eventing-source/1.22/kafka"]

    objects = await there.installed(eventing(status={"manifests": paths}))

    assert names(objects) == ["eventing-crds", "eventing-core", "kafka"]


async def test_a_version_in_the_status_is_enough(there: Releases):
    objects = await there.installed(serving(status={"version": "1.22.0"}))

    assert names(objects) == ["serving-crds", "serving-core"]


async def test_with_an_empty_status_the_target_counts(there: Releases):
    assert names(await there.installed(eventing())) == ["eventing-crds", "eventing-core"]


@pytest.mark.parametrize(
    "status",
    [
        {"version": "0.9.0"},
        {"manifests": ["/var/run/ko/knative-serving/0.9.0"]},
        {"manifests": ["/ko/knative-serving/1.22.0/../../../secret"]},
    ],
)
async def test_what_is_gone_is_no_error(there: Releases, status: Object):
    assert await there.installed(serving(status=status)) == []


async def test_an_unknown_target_is_no_error_either(there: Releases):
    assert await there.installed(serving(version="0.1")) == []


# Values


async def test_each_caller_has_objects_of_its_own(there: Releases):
    bundle = await there.load(serving())
    bundle.objects()[0]["metadata"]["name"] = "changed"

    assert names(bundle.objects())[0] == "serving-crds"


async def test_the_digest_tells_bundles_apart(there: Releases, tmp_path: Path):
    file = write(tmp_path / "more.yaml", config_map("more"))

    plain = await there.load(serving())
    same = await there.load(serving(version="1.23"))
    other = await there.load(serving(additionalManifests=urls(file)))

    assert plain.digest == same.digest
    assert plain.digest != other.digest
