"""What becomes of a container's command line on this machine."""

import sys
from pathlib import Path

import pytest

from knfleet.dev.node.containers.container_command import (
    CommandNotFound,
    Rewriter,
    command_line,
    executable,
    expand,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(NAME)", "web"),
        ("a-$(NAME)-$(NAME)", "a-web-web"),
        ("$(OTHER)", "$(OTHER)"),
        ("$$(NAME)", "$(NAME)"),
        ("$NAME ${NAME}", "$NAME ${NAME}"),
        ("100$", "100$"),
    ],
)
def test_variables_are_expanded_by_kubernetes_rules(text: str, expected: str) -> None:
    """Unknown names stay as they are."""
    assert expand(text, {"NAME": "web"}) == expected


def test_command_replaces_entrypoint_and_args_follow() -> None:
    """Without either, our image runs its own program."""
    assert command_line({}, {}) == ["knfleet"]
    assert command_line({"args": ["hub", "$(N)"]}, {"N": "1"}) == ["knfleet", "hub", "1"]
    assert command_line({"command": ["python"], "args": ["-V"]}, {}) == ["python", "-V"]


def test_programs_beside_the_interpreter_come_first(tmp_path: Path) -> None:
    """A path of the image that does not exist here means the program of that name."""
    beside = Path(sys.executable).parent

    assert executable("knfleet") == beside / "knfleet"
    assert executable("/usr/local/bin/knfleet") == beside / "knfleet"
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert executable(str(tool)) == tool
    assert executable("tool", search=str(tmp_path)) == tool
    with pytest.raises(CommandNotFound, match="no-such-tool"):
        executable("/opt/no-such-tool")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/etc/app", "/R/etc/app"),
        ("/etc/app/file.json", "/R/etc/app/file.json"),
        ("--config=/etc/app/x", "--config=/R/etc/app/x"),
        ("a:/etc/app:/plugins", "a:/R/etc/app:/R/plugins"),
        ("open('/etc/app/x')", "open('/R/etc/app/x')"),
        ("file:///etc/app/x", "file:///R/etc/app/x"),
        ("/etc/apple", "/etc/apple"),
        ("/my/etc/app", "/my/etc/app"),
        ("/etc/app/certs/ca", "/R/etc/app/certs/ca"),
        ("https://host/etc/app", "https://host/etc/app"),
    ],
)
def test_mount_paths_become_real_folders(text: str, expected: str) -> None:
    """Only where they are paths, and the whole of them."""
    rewriter = Rewriter(Path("/R"), ["/etc/app", "/etc/app/certs", "/plugins/"])

    assert rewriter.rewrite(text) == expected


def test_without_mounts_nothing_is_rewritten() -> None:
    """Nor with one at the root."""
    assert Rewriter(Path("/R"), ["/"]).rewrite("/etc/app") == "/etc/app"
