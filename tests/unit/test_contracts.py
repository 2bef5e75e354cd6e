"""What users and other programs rely on stays as it is, wherever the code that makes it moves.

`KNFLEET_RECORD=1 pytest tests/unit/test_contracts.py` records it again after a change on purpose;
such a change belongs into the changelog.
"""

import hashlib
import importlib
import json
import os
import pkgutil
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import click
import msgspec
import pytest

import knfleet
from knfleet.api.crds.fleet import hub_definitions, spoke_definitions
from knfleet.api.crds.generator import definitions
from knfleet.api.meta import Object
from knfleet.cli.main import knfleet as command_line
from knfleet.cli.reference import commands
from knfleet.view.reasons.catalog import CHAPTERS

RECORD = Path(__file__).with_name("contracts.json")
KEY = re.compile(r"^([a-z0-9-]+\.)+(dev|io)/[\w.:-]*$")
"""Labels, annotations and finalizers."""
NAMED = re.compile(r"(LEASE|FIELD_MANAGER|ROLE|SIGNER|USER|PREFIX)")
"""Constants whose values are names that others see."""
METRIC = re.compile(r"^\| `(knfleet_\w+)` \|", re.MULTILINE)
"""A row of the page about metrics, which a test compares with what a process exports."""
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def modules() -> Iterator[ModuleType]:
    """All modules of the program but those that run when they are imported."""
    for each in pkgutil.walk_packages(knfleet.__path__, "knfleet."):
        if not each.name.endswith("__main__"):
            yield importlib.import_module(each.name)


def texts(value: object) -> Iterator[str]:
    """The strings in a constant."""
    if isinstance(value, str):
        yield str(value)
    elif isinstance(value, tuple | list | frozenset):
        for each in cast("Iterable[object]", value):
            yield from texts(each)


def constants() -> Iterator[tuple[str, str]]:
    """Every constant of a module, by name."""
    for module in modules():
        for name, value in vars(module).items():
            if name.isupper():
                yield from ((name, text) for text in texts(value))


def without_words(schema: Any) -> Any:
    """A schema without its descriptions, which may be worded better at any time."""
    if isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema)
        return {
            name: without_words(value)
            for name, value in fields.items()
            if not (name == "description" and isinstance(value, str))
        }
    if isinstance(schema, list):
        return [without_words(each) for each in cast("list[Any]", schema)]
    return schema


def digest(definition: Object) -> str:
    """The schema of a kind in a few characters."""
    written = msgspec.json.encode(without_words(definition), order="sorted")
    return hashlib.sha256(written).hexdigest()[:16]


def flags(command: click.Command) -> list[str]:
    """All options of a command, with the variables that stand for them."""
    found: list[str] = []
    for each in command.params:
        names = "/".join(sorted([*each.opts, *each.secondary_opts]))
        found.append(f"{names} ${each.envvar}" if isinstance(each.envvar, str) else names)
    return sorted(found)


def contracts() -> dict[str, Any]:
    """All of it as one value."""
    named = list(constants())
    definitions_ = [*definitions(), *hub_definitions(), *spoke_definitions()]
    return {
        "custom resource definitions": {
            each["metadata"]["name"]: digest(each) for each in definitions_
        },
        "labels, annotations and finalizers": sorted(
            {text for _, text in named if KEY.match(text)}
        ),
        "names": sorted({text for name, text in named if NAMED.search(name) and " " not in text}),
        "metrics": sorted(METRIC.findall(PAGE.read_text(encoding="utf-8"))),
        "reasons": {chapter: sorted(map(str, found)) for chapter, found in CHAPTERS.items()},
        "options": {name: flags(each) for name, each in commands(command_line, "knfleet")},
    }


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """The contracts of this tree."""
    value = contracts()
    if os.environ.get("KNFLEET_RECORD"):
        RECORD.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return value


RECORDED: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def test_every_contract_is_recorded(found: dict[str, Any]) -> None:
    """A new kind of contract is recorded as well."""
    assert [*found] == [*RECORDED]


@pytest.mark.parametrize("contract", RECORDED)
def test_what_others_rely_on_is_as_recorded(contract: str, found: dict[str, Any]) -> None:
    """A change on purpose is recorded with `KNFLEET_RECORD=1`, and stands in the changelog."""
    assert RECORDED[contract] == found[contract]
