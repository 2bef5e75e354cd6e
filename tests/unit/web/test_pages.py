"""Pages as values: what changed is found, and makes an old page current."""

from hypothesis import given
from hypothesis import strategies as st

from knfleet.web.live.channels import KEPT, Channel, LiveChannels
from knfleet.web.live.feed import HubFeed
from knfleet.web.pages.page import PagePatch, WebPage, difference, event, whole

ids = st.sampled_from(["a", "b", "c", "d"])
texts = st.sampled_from(["<p>1</p>", "<p>2</p>", "<p>3</p>"])


@st.composite
def pages(draw: st.DrawFn) -> WebPage:
    """A page with one list."""
    blocks = draw(st.dictionaries(ids, texts))
    order = draw(st.permutations(sorted(blocks)))
    return WebPage("Title", "x.html", blocks, {"list": tuple(order)})


def applied(page: WebPage, patch: PagePatch | None) -> tuple[tuple[str, str], ...]:
    """What a browser shows after a patch: the blocks of the list in their order."""
    blocks, lists = dict(page.blocks), dict(page.lists)
    if patch is not None:
        blocks |= patch.blocks
        lists |= patch.lists
    return tuple((each, blocks[each]) for each in lists["list"])


@given(pages(), pages())
def test_the_difference_makes_an_old_page_current(old: WebPage, new: WebPage) -> None:
    """Whatever came, went, moved or changed."""
    assert applied(new, None) == applied(old, difference(old, new))


@given(pages())
def test_a_page_that_did_not_change_says_nothing(page: WebPage) -> None:
    """No patch, so that nothing is sent."""
    assert difference(page, page) is None


def test_only_what_changed_is_sent() -> None:
    """One row of many, and no list when the order is the same."""
    old = WebPage("T", "x", {"a": "1", "b": "2"}, {"list": ("a", "b")})
    new = WebPage("T", "x", {"a": "1", "b": "3"}, {"list": ("a", "b")})

    assert PagePatch(new.digest(), {"b": "3"}) == difference(old, new)


def test_an_event_is_one_line_whatever_is_in_it() -> None:
    """A line break in HTML would end the event."""
    sent = event(whole(WebPage("T", "x", {"a": "one\ntwo"})))

    assert sent.startswith(b"event: patch\ndata: {")
    assert sent.count(b"\n") == 3


def test_a_viewer_who_missed_little_gets_that_and_who_missed_much_gets_all() -> None:
    """Changes are kept for a while."""
    state = {"number": 0}

    def build() -> WebPage:
        return WebPage("T", "x", {"a": str(state["number"]), "b": "same"})

    channel = Channel(build, build())
    for number in range(1, KEPT + 2):
        state["number"] = number
        channel.refresh()

    assert b'"b"' not in channel.since(1)
    assert channel.since(1).count(b"event: patch") == KEPT
    assert channel.whole() == channel.since(0)
    assert b'"b":"same"' in channel.since(0)


def test_what_is_gone_is_told() -> None:
    """A page about something that was deleted says so."""
    found = [WebPage("T", "x", {"a": "1"}), None]
    channel = Channel(lambda: found[1], WebPage("T", "x", {"a": "1"}))
    channel.refresh()

    assert b"event: gone" in channel.since(0)


async def test_a_page_that_cannot_be_drawn_harms_no_other() -> None:
    """It stays as it was, and the next change is told to the others."""
    state = {"number": 0}

    def build() -> WebPage:
        return WebPage("T", "x", {"a": str(state["number"])})

    def fail() -> WebPage:
        if state["number"]:
            raise ValueError("an odd object")
        return build()

    live = LiveChannels(HubFeed())
    with live.channel("bad", fail) as bad, live.channel("good", build) as good:
        assert bad is not None
        assert good is not None
        state["number"] = 1
        for channel in live.channels.values():
            live.refresh(channel)

    assert (bad.version, good.version) == (0, 1)
