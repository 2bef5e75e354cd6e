"""Pages as values: blocks of HTML that have names, and lists that say in which order they stand.

A page in a browser is brought up to date by the blocks that are new and the lists that changed; the
same values make the whole page when it is loaded. So there is one way to draw each thing.
"""

import hashlib
from typing import Any

import msgspec
from msgspec import Struct, field


class WebPage(Struct, frozen=True):
    """What one page shows."""

    title: str
    template: str
    blocks: dict[str, str] = field(default_factory=dict[str, str])
    """HTML by the id of the element that it is."""
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Ids of blocks in their order, by the id of the element that they are in."""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the template draws once, and nothing changes."""

    def digest(self) -> str:
        """What tells two states of a page apart."""
        content = msgspec.json.encode([self.blocks, self.lists], order="sorted")
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    def listed(self, name: str) -> list[str]:
        return [self.blocks[each] for each in self.lists[name]]


class PagePatch(Struct, frozen=True, omit_defaults=True):
    """What makes a page in a browser current."""

    rev: str
    blocks: dict[str, str] = {}
    lists: dict[str, tuple[str, ...]] = {}


def difference(old: WebPage, new: WebPage) -> PagePatch | None:
    """What changed from one state of a page to the next; None when nothing did."""
    blocks = {id_: html for id_, html in new.blocks.items() if old.blocks.get(id_) != html}
    lists = {id_: order for id_, order in new.lists.items() if old.lists.get(id_) != order}
    if not blocks and not lists:
        return None
    return PagePatch(new.digest(), blocks, lists)


def whole(page: WebPage) -> PagePatch:
    return PagePatch(page.digest(), page.blocks, page.lists)


def event(patch: PagePatch) -> bytes:
    """A patch as a server-sent event."""
    return b"event: patch\ndata: " + msgspec.json.encode(patch) + b"\n\n"
