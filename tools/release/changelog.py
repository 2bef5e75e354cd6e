"""The section of the changelog that a release is described by."""

import re

HEADING = re.compile(r"^## (?P<version>\S+)(?: .*)?$")


class ChangelogError(Exception):
    """The changelog does not describe the release."""


def section(text: str, version: str) -> str:
    """What the changelog says of a version, without its heading."""
    found: list[str] | None = None
    for line in text.splitlines():
        if heading := HEADING.match(line):
            if found is not None:
                break
            found = [] if heading["version"] == version else None
        elif found is not None:
            found.append(line)
    content = "\n".join(found or []).strip()
    if not content:
        raise ChangelogError(
            f"CHANGELOG.md says nothing of {version}; give its section the heading `## {version}`"
            " and commit that before the tag"
        )
    return f"{content}\n"
