"""Addresses and searches."""

import pytest

from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key
from knfleet.web.pages.routes import Route, finds, route_of


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/", Route("overview")),
        ("/versions", Route("versions")),
        ("/addons", Route("addons")),
        ("/cluster/c1", Route("cluster", ("c1",))),
        ("/cluster/fleet/c1", Route("cluster", ("fleet/c1",))),
        ("/cr/knativeserving/ns/n", Route("install", ("knativeserving", "ns", "n"))),
    ],
)
def test_an_address_is_a_page(path: str, route: Route) -> None:
    """A cluster that another manager publishes has a slash in its name."""
    assert route == route_of(path, {})


@pytest.mark.parametrize("path", ["", "/cr/secrets/ns/n", "/cr/knativeserving/ns", "/clusters"])
def test_all_else_is_none(path: str) -> None:
    """Only our two kinds have pages."""
    assert route_of(path, {}) is None


def test_a_page_about_an_installation_knows_which() -> None:
    """Kind and key come from the address."""
    route = route_of("/cr/knativeserving/my%20ns/n", {})

    assert route is not None
    assert (SERVINGS, Key("my ns", "n")) == route.installation()


@pytest.mark.parametrize(
    ("number", "expected"), [("2", 2), ("0", 1), ("-3", 1), ("x", 1), ("99999999", 1)]
)
def test_a_part_that_is_none_is_the_first(number: str, expected: int) -> None:
    """Whatever somebody types."""
    route = route_of("/", {"page": number})

    assert route is not None
    assert expected == route.number


def test_a_search_finds_what_has_all_words() -> None:
    """In any order, in any case, in any of the texts."""
    words = Route("overview", search=" Broken  SPOKE ").words

    assert finds(words, "spoke-1", "broken")
    assert not finds(words, "spoke-1", "fine")
    assert finds([], "anything")
