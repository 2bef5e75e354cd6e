"""The reference of commands is that of the commands that there are."""

import click
import pytest

from knfleet.cli.main import COMMANDS, knfleet
from knfleet.cli.reference import commands, page
from tests.docs.pages import DOCS

EVERY = dict(commands(knfleet, "knfleet"))


def test_the_page_is_up_to_date():
    """It is written by `make docs`."""
    assert (DOCS / "commands.md").read_text() == page(), "run: make docs"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_on_the_page(name: str):
    """Also those that come later, by themselves."""
    assert f"\n## knfleet {name}" in page()


@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_command_and_every_option_says_what_it_is_for(name: str):
    """What `--help` says is all that many people read."""
    silent = [
        each.opts[-1]
        for each in EVERY[name].params
        if isinstance(each, click.Option) and not each.hidden and not each.help
    ]

    assert silent == []
    assert EVERY[name].help
