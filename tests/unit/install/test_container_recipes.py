"""The image recipes, as far as they can be checked without building them."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from knfleet import __version__
from knfleet.cli.main import knfleet

ROOT = Path(__file__).parents[3]
RECIPES = ("Containerfile", "Containerfile.plugins")


def instructions(recipe: str) -> list[tuple[str, str]]:
    """The instructions of a recipe, each with what follows."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / recipe).read_text()).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


@pytest.mark.parametrize("recipe", RECIPES)
def test_everything_that_is_copied_from_the_tree_is_there(recipe: str) -> None:
    """Copies from other stages are not of the tree."""
    copies = [rest.split() for word, rest in instructions(recipe) if word == "COPY"]

    assert copies
    for *sources, _ in (each for each in copies if not each[0].startswith("--from")):
        assert [each for each in sources if not (ROOT / each).exists()] == []


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_image_runs_as_nobody_from_a_base_without_a_host(recipe: str) -> None:
    """Whoever builds says where bases come from; a number shows that it is not root."""
    found = instructions(recipe)
    bases = [rest.split()[0] for word, rest in found if word == "FROM"]
    defaults = [rest.partition("=")[2] for word, rest in found if word == "ARG"]

    assert [rest for word, rest in found if word == "USER"][-1] == "65532:65532"
    assert set(bases) <= {"scratch", "${PYTHON}", "${GO}", "${KNFLEET}"}
    assert not [each for each in defaults if "/" in each]


@pytest.mark.parametrize("recipe", RECIPES)
def test_bases_are_pinned_to_exact_versions(recipe: str) -> None:
    """A moving tag would build another image next month."""
    arguments = [rest for word, rest in instructions(recipe) if word == "ARG"]
    bases = [each for each in arguments if each.startswith(("PYTHON=", "GO=", "KNFLEET="))]

    assert bases
    assert [each for each in bases if not re.search(r":\d+\.\d+\.\d+(-[\w.-]+)?$", each)] == []


def test_the_plugins_are_those_of_this_version() -> None:
    """The default base is the image of the same release."""
    assert ("ARG", f"KNFLEET=knfleet:{__version__}") in instructions("Containerfile.plugins")


def test_every_command_of_ours_in_a_recipe_exists() -> None:
    """With the options that it is given; and so do the flags of what the image runs."""
    runs = [rest for word, rest in instructions("Containerfile") if word == "RUN"]
    commands = [
        shlex.split(part)
        for run in runs
        for part in run.split("&&")
        if re.search(r"(^|\s)knfleet ", part)
    ]

    assert len(commands) == 2
    for command in commands:
        words = command[command.index("knfleet") + 1 :]
        options = [each for each in words if each.startswith("--")]
        path = words[: words.index(options[0])] if options else words
        answer = CliRunner().invoke(knfleet, [*path, "--help"])
        assert answer.exit_code == 0, answer.output
        assert [each for each in options if each not in answer.output] == []
    [run] = [rest for word, rest in instructions("Containerfile") if word == "CMD"]
    assert CliRunner().invoke(knfleet, [*json.loads(run), "--help"]).exit_code == 0


def test_the_programs_in_the_plugins_image_are_installed_by_the_package() -> None:
    """Under the names that the reference images have."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    copied = re.findall(r"/opt/knfleet/bin/([\w-]+)", (ROOT / "Containerfile.plugins").read_text())

    assert copied == ["secretreader-plugin", "kubeconfig-secretreader-plugin"]
    assert set(copied) <= set(scripts)


def test_dependencies_are_installed_by_hash() -> None:
    """Every file of requirements that the recipe names."""
    text = " ".join(rest for word, rest in instructions("Containerfile") if word == "RUN")
    named = re.findall(r"requirements/\w+\.txt", text)

    assert {
        "requirements/bootstrap.txt",
        "requirements/dev.txt",
        "requirements/runtime.txt",
    } == set(named)
    assert text.count("--require-hashes") == 3
    for name in set(named):
        assert "--hash=sha256:" in (ROOT / name).read_text()
