"""YAML for programs: values with tuples in them, as ours are."""

import pytest
from msgspec import Struct

from knfleet.cli.fleet.fleet_options import print_yaml
from knfleet.kube.yaml import load_all


class Named(Struct, frozen=True):
    """Something with names."""

    names: tuple[str, ...]
    pairs: tuple[tuple[str, int], ...] = ()


def test_values_with_tuples_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_yaml(Named(("a", "b"), (("c", 1),)))

    assert load_all(capsys.readouterr().out) == [{"names": ["a", "b"], "pairs": [["c", 1]]}]
