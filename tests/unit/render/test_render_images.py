"""Images, wherever a release keeps them."""

import pytest

from knfleet.api.meta import Object
from knfleet.render.errors import RenderError
from knfleet.render.overrides.images import short_name
from tests.unit.render.samples import (
    DIGEST,
    config_map,
    container,
    env,
    images,
    job,
    one,
    pod,
    thing,
    workload,
)

QUEUE = f"gcr.io/knative-releases/knative.dev/serving/cmd/queue{DIGEST}"


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (QUEUE, "queue"),
        ("docker.io/name:tag", "name"),
        ("docker.io/name", "name"),
        ("localhost:5000/a/name:tag" + DIGEST, "name"),
        ("name:tag", ""),
        ("", ""),
    ],
)
def test_the_short_name_is_the_last_part_of_the_path(image: str, name: str):
    """Without tag and digest; none when the image has no path."""
    assert name == short_name(image)


@pytest.mark.parametrize(
    ("registry", "expected"),
    [
        ({"default": "r/${NAME}:1"}, ["r/queue:1", "r/two:1"]),
        ({"default": "${NAME}/${NAME}"}, ["queue/queue", "two/two"]),
        ({"override": {"one": "i"}}, ["i", "busybox"]),
        ({"default": "r/${NAME}", "override": {"one": "i"}}, ["i", "r/two"]),
        ({"override": {"unrelated": "i"}}, [QUEUE, "busybox"]),
        ({"override": {"d/one": "i", "one": "j", "two": "k"}}, ["i", "k"]),
        ({"override": {"other/one": "i"}}, [QUEUE, "busybox"]),
        ({}, [QUEUE, "busybox"]),
    ],
)
@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "StatefulSet", "Job"])
def test_containers_take_the_most_special_image(kind: str, registry: Object, expected: list[str]):
    """workload/container, then container, then the template."""
    manifest = workload("d", container("one", QUEUE), container("two", "busybox"), kind=kind)

    assert expected == images(one(manifest, {"registry": registry}))


def test_a_job_without_a_name_is_known_by_its_generate_name():
    """It is named only later."""
    manifest = job("migrate-", container("migrate", QUEUE))

    result = one(manifest, {"registry": {"override": {"migrate-/migrate": "i"}}})

    assert images(result) == ["i"]


def test_init_containers_are_reached_too():
    """Upstream leaves them where they are."""
    manifest = workload("d", initContainers=[container("init", QUEUE)])

    by_template = one(manifest, {"registry": {"default": "r/${NAME}"}})
    by_name = one(manifest, {"registry": {"override": {"d/init": "i"}}})

    assert pod(by_template)["initContainers"][0]["image"] == "r/queue"
    assert pod(by_name)["initContainers"][0]["image"] == "i"


def test_cron_jobs_are_reached_too():
    """Their pods are one step deeper."""
    template = workload("nightly")["spec"]["template"]
    spec = {"jobTemplate": {"spec": {"template": template}}}
    manifest = thing("batch/v1", "CronJob", "nightly", spec=spec)

    result = one(manifest, {"registry": {"override": {"nightly/nightly": "i"}}})

    pods = result["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert [found["image"] for found in pods["containers"]] == ["i"]


def test_images_in_the_environment_are_reached_by_the_name_of_the_variable():
    """And never by the template."""
    variables = [
        {"name": "DISPATCHER_IMAGE", "value": QUEUE},
        {"name": "JSONATA_IMAGE", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}},
        {"name": "OTHER_IMAGE", "value": QUEUE},
    ]
    registry = {
        "default": "r/${NAME}",
        "override": {"DISPATCHER_IMAGE": "i", "JSONATA_IMAGE": "j", "c": "k"},
    }

    result = one(workload("d", container("c", env=variables)), {"registry": registry})

    assert env(result) == [
        {"name": "DISPATCHER_IMAGE", "value": "i"},
        {"name": "JSONATA_IMAGE", "value": "j"},
        {"name": "OTHER_IMAGE", "value": QUEUE},
    ]
    assert images(result) == ["k"]


def test_images_in_config_maps_are_reached_by_key_and_config_wins():
    """Upstream reaches them only by `spec.config`."""
    manifest = config_map("config-deployment", **{"queue-sidecar-image": QUEUE, "_example": "x"})
    override = {"queue-sidecar-image": "i", "_example": "never"}

    by_key = one(manifest, {"registry": {"override": override}})
    by_both = one(manifest, {"registry": {"override": {"config-deployment/_example": "always"}}})
    config = {"deployment": {"queue-sidecar-image": "config"}}
    by_config = one(manifest, {"registry": {"override": override}, "config": config})

    assert by_key["data"] == {"queue-sidecar-image": "i", "_example": "x"}
    assert by_both["data"]["_example"] == "always"
    assert by_config["data"]["queue-sidecar-image"] == "config"


def test_caching_images_follow_by_name_or_template():
    """They keep no status."""
    manifest = thing(
        "caching.internal.knative.dev/v1alpha1",
        "Image",
        "queue-proxy",
        spec={"image": QUEUE, "imagePullSecrets": [{"name": "old"}]},
        status={"x": 1},
    )
    secrets = [{"name": "new"}]

    named = one(manifest, {"registry": {"override": {"queue-proxy": "i"}}})
    template = one(manifest, {"registry": {"default": "r/${NAME}", "imagePullSecrets": secrets}})

    assert named["spec"]["image"] == "i"
    assert "status" not in named
    assert template["spec"]["image"] == "r/queue"
    assert template["spec"]["imagePullSecrets"] == [{"name": "old"}, {"name": "new"}]


def test_pull_secrets_come_after_those_that_are_there_and_only_once():
    """Upstream repeats them, which server-side apply refuses."""
    manifest = workload("d", imagePullSecrets=[{"name": "a"}])
    secrets = [{"name": "a"}, {"name": "b"}, {"name": "b"}]

    result = one(manifest, {"registry": {"imagePullSecrets": secrets}})

    assert pod(result)["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


def test_a_pull_secret_without_a_name_is_passed_over():
    """Upstream installs with it once, and then never again."""
    result = one(workload("d"), {"registry": {"imagePullSecrets": [{}, {"name": ""}]}})

    assert "imagePullSecrets" not in pod(result)


def test_a_template_without_a_name_is_refused():
    """Upstream would give every container the same image."""
    with pytest.raises(RenderError) as caught:
        one(workload("d"), {"registry": {"default": "example.com/knative"}})

    message = str(caught.value)
    assert message.startswith("KnativeServing knative-serving/knative: spec.registry.default: ")
    assert '"example.com/knative" has no ${NAME}' in message
