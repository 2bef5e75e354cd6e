"""Renderings are shared by custom resources that ask for the same, and by no others."""

import gc
from pathlib import Path
from typing import Any

import pytest

from knfleet.api.knative.resources import KnativeServing
from knfleet.api.meta import ClusterName
from knfleet.api.schema import decode
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.operator.desired_objects import Renderer, RenderResult
from knfleet.render.pipeline import Need
from testbed.waiting import until
from tests.unit.release.tree import releases, tree


class Place:
    """A target that nothing is known of."""

    def __init__(self) -> None:
        endpoint = Endpoint("https://127.0.0.1:1")
        credential = StaticCredential(Credential(token="none"))
        self.client = Client(Connection(ClusterName("spoke"), endpoint, credential))
        self.rendering: RenderResult | None = None

    def generation_of(self, need: Need) -> int | None:
        """Nobody knows."""
        return None


@pytest.fixture
def renderer(tmp_path: Path) -> Renderer:
    """A renderer of small releases."""
    return Renderer(releases(tree(tmp_path / "ko"), tmp_path / "cache"))


def serving(name: str, namespace: str = "knative-serving", **spec: Any) -> KnativeServing:
    """A custom resource for the spoke of its name."""
    return decode(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterProfileRef": {"name": name, "namespace": "fleet"}, **spec},
        },
        KnativeServing,
    )


async def test_the_same_wish_on_two_spokes_is_rendered_once(renderer: Renderer) -> None:
    """Whatever they are called, and wherever they are installed."""
    one = await renderer.render(serving("one"), Place())
    other = await renderer.render(serving("other"), Place())

    assert one.objects
    assert one.objects is other.objects


async def test_another_wish_is_rendered_apart(renderer: Renderer) -> None:
    """A setting, or a namespace, makes other objects."""
    one = await renderer.render(serving("one"), Place())
    configured = await renderer.render(serving("one", config={"core": {"a": "b"}}), Place())
    moved = await renderer.render(serving("one", "elsewhere"), Place())

    assert one.objects is not configured.objects
    assert one.objects is not moved.objects
    assert {each["metadata"].get("namespace") for each in moved.objects} <= {"elsewhere", None}


async def test_what_nobody_needs_is_not_kept(renderer: Renderer) -> None:
    """Memory is for what is installed."""
    await renderer.render(serving("one"), Place())

    def is_gone() -> bool:
        gc.collect()
        return not renderer.shared

    await until(is_gone, "nothing is kept")
