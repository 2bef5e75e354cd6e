"""Pictures are drawn from what programs print, hold nothing secret, and fetch nothing."""

import os
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.docs.pages import DOCS, ROOT
from tools.terminal import Said, picture, run, settled

PICTURES = sorted(DOCS.rglob("*.svg"))
TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJuIn0.c2lnbmF0dXJl"


def test_a_terminal_is_drawn_as_it_looked_in_the_end(tmp_path: Path):
    """What was rewritten in place is gone, colours stay, and a token is left out."""
    printed = run(
        rf"printf 'half\r\033[Kwhole\n\033[31mred\033[0m <&>\n{TOKEN}\n'", tmp_path, os.environ
    )
    drawn = picture("try", [Said("say", printed)])
    texts = [each.text for each in ET.fromstring(drawn).iter() if each.tag.endswith("text")]

    assert settled(printed) == ["whole", "\x1b[31mred\x1b[0m <&>", "…"]
    assert texts == ["try", "$", "say", "whole", "red", " <&>", "…"]
    assert TOKEN not in drawn


def test_a_command_that_fails_makes_no_picture(tmp_path: Path):
    with pytest.raises(RuntimeError, match="exit code 3"):
        run("echo no; exit 3", tmp_path, os.environ)


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_stands_for_itself(path: Path):
    """No script, no address, no token, nothing of the machine that it was made on."""
    text = path.read_text()
    found = {each.tag.rpartition("}")[2] for each in ET.fromstring(text).iter()}

    assert found <= {"svg", "title", "desc", "style", "rect", "circle", "text", "g"}
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg|127\.0\.0\.1)", text) == []
    assert "eyJ" not in text
    assert str(ROOT) not in text
    assert "/tmp" not in text
