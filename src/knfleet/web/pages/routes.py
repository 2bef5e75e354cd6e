"""Which page an address means, and what of it is searched.

A page is a name and a path here, a function in `views.PAGES`, and a template.
"""

import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import unquote

from msgspec import Struct

from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Resource

Name = Literal["overview", "versions", "addons", "cluster", "install", "work"]
KINDS = {kind.kind.lower(): kind for kind in (SERVINGS, EVENTINGS)}
PATTERNS: tuple[tuple[Name, re.Pattern[str]], ...] = (
    ("overview", re.compile(r"/")),
    ("versions", re.compile(r"/versions")),
    ("addons", re.compile(r"/addons")),
    ("cluster", re.compile(r"/cluster/([^?#]+)")),
    ("install", re.compile(r"/cr/([a-z]+)/([^/]+)/([^/]+)")),
    ("work", re.compile(r"/work/([^/]+)/([^/]+)")),
)
PATHS = (
    "/",
    "/versions",
    "/addons",
    "/cluster/{name:.+}",
    "/cr/{kind}/{namespace}/{name}",
    "/work/{cluster}/{name}",
)
"""The same for the server's router."""
LONGEST = 200
MOST_PAGES = 1000


class Route(Struct, frozen=True):
    """One page, and what is asked of it."""

    name: Name
    parts: tuple[str, ...] = ()
    search: str = ""
    number: int = 1
    """Which part of a long list."""

    @property
    def words(self) -> list[str]:
        """What is searched for: all of these."""
        return self.search.casefold().split()

    def installation(self) -> tuple[Resource, Key]:
        """The custom resource that a page is about."""
        kind, namespace, name = self.parts
        return KINDS[kind], Key(namespace, name)


def route_of(path: str, query: Mapping[str, str]) -> Route | None:
    """The page of an address; None when there is none."""
    for name, pattern in PATTERNS:
        found = pattern.fullmatch(path)
        if found is None:
            continue
        parts = tuple(map(unquote, found.groups()))
        if name == "install" and parts[0] not in KINDS:
            return None
        number = query.get("page", "1")
        page = int(number) if number.isdecimal() and len(number) < 5 else 1
        return Route(
            name, parts, query.get("q", "").strip()[:LONGEST], min(max(page, 1), MOST_PAGES)
        )
    return None


def finds(words: list[str], *texts: str) -> bool:
    """Whether all words are somewhere in some texts."""
    if not words:
        return True
    text = "\n".join(texts).casefold()
    return all(word in text for word in words)
