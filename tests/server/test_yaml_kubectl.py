"""The table of YAML meanings is what the real kubectl says today."""

import json
import subprocess
from typing import Any

import pytest

from knfleet.kube.yaml import dump_all, load_all
from testbed.clusters import kubectl
from tests.support.yaml_table import MAPPINGS, REFUSED, SCALARS

HEADER = "apiVersion: example.dev/v1\nkind: Probe\nmetadata: {name: probe}\nspec:\n"


def kubectl_reads(text: str) -> list[dict[str, Any]] | None:
    """The objects that kubectl finds in a text; None when it refuses."""
    done = subprocess.run(
        [kubectl(), "patch", "--local", "-f", "-", "-o", "json", "--type=merge", "-p", "{}"],
        input=text.encode(),
        capture_output=True,
        env={"KUBECONFIG": "/dev/null", "HOME": "/nonexistent"},
        timeout=60,
        check=False,
    )
    if done.returncode:
        return None
    return load_all(done.stdout)


def indented(text: str) -> str:
    """A mapping as the value of `spec`."""
    return "".join(f"  {line}\n" for line in text.split("\n"))


def test_kubectl_reads_the_scalars_of_the_table_the_same() -> None:
    """All of them in one file."""
    spec = "".join(f"  k{number}: {text}\n" for number, (text, _) in enumerate(SCALARS))

    read = kubectl_reads(HEADER + spec)

    assert read is not None
    for number, (text, expected) in enumerate(SCALARS):
        assert expected == read[0]["spec"][f"k{number}"], text


@pytest.mark.parametrize(("text", "expected"), MAPPINGS)
def test_kubectl_reads_the_mappings_of_the_table_the_same(text: str, expected: object) -> None:
    """One file for each, since anchors and keys could meet."""
    read = kubectl_reads(HEADER + indented(text))

    assert read is not None
    assert expected == read[0]["spec"]


@pytest.mark.parametrize("text", [text for text, _ in REFUSED])
def test_kubectl_refuses_what_the_table_says_it_refuses(text: str) -> None:
    """We are not stricter than kubectl, but for duplicate keys."""
    assert kubectl_reads(HEADER + indented(text)) is None


def test_kubectl_reads_what_we_write() -> None:
    """Words, numbers, odd strings and blocks survive the way through a file."""
    strings = [text for text, _ in SCALARS]
    strings += [
        "a\n",
        "\na",
        " a\n b",
        "a \nb",
        "a\n\n",
        "\ta\n",
        "\x00\x1b",
        "\x85",
        "\u2028",
        "😀",
    ]
    strings += ["- a", "a: b", "#", "%x", "@", "`", "'", '"', "\\", "{", "]", "? a", "!x", "|", ">"]
    values = [value for _, value in SCALARS if value is not None]
    spec = {"strings": strings, "values": values, "keys": {text: text for text in strings}}
    probe = {
        "apiVersion": "example.dev/v1",
        "kind": "Probe",
        "metadata": {"name": "p"},
        "spec": spec,
    }

    read = kubectl_reads(dump_all([probe]))

    assert read is not None
    assert json.loads(json.dumps(probe)) == read[0]


def test_kubectl_reads_json_as_we_do() -> None:
    """A JSON file is not YAML: its escapes are JSON's own."""
    spec = '{"a":"\\ud83d\\ude00\\/","b":1.0,"c":18446744073709551616,"d":"yes"}'
    meta = '"apiVersion":"example.dev/v1","kind":"Probe","metadata":{"name":"p"}'
    text = f'{{{meta},"spec":{spec}}}'

    assert load_all(text) == kubectl_reads(text)
