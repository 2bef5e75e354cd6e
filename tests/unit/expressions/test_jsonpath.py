"""JSONPath as Kubernetes has it."""

from typing import Any

import pytest

from knfleet.expressions import jsonpath
from knfleet.expressions.jsonpath import MOST, JsonPathError

READY = {"type": "Ready", "status": "True", "n": 1}
SYNCED = {"type": "Synced", "status": "False", "n": 2}
VALUE: dict[str, Any] = {
    "metadata": {"annotations": {"a.b/c": "d"}, "name": "x"},
    "status": {"conditions": [READY, SYNCED], "replicas": 3, "numbers": [1, 2, 3, 4], "none": None},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".status.replicas", [3]),
        ("{.status.replicas}", [3]),
        ("$.status.replicas", [3]),
        ("status.replicas", [3]),
        (".status['replicas']", [3]),
        (".status.absent.deeper", []),
        (".status.none", [None]),
        (".metadata.annotations.a\\.b/c", ["d"]),
        (".metadata.annotations['a.b/c']", ["d"]),
        (".status.numbers[0]", [1]),
        (".status.numbers[-1]", [4]),
        (".status.numbers[9]", []),
        (".status.numbers[1:3]", [2, 3]),
        (".status.numbers[::2]", [1, 3]),
        (".status.numbers[0,2]", [1, 3]),
        (".status.numbers[*]", [1, 2, 3, 4]),
        (".status.numbers.*", [1, 2, 3, 4]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type == 'Synced')].status", ["False"]),
        (".status.conditions[?(@.n>=2)].type", ["Synced"]),
        (".status.conditions[?(@.n < 'text')].type", []),
        (".status.conditions[?(@.absent)].type", []),
        (".status.conditions[?(@.status)].type", ["Ready", "Synced"]),
        (".status.conditions[*].type", ["Ready", "Synced"]),
        ("..type", ["Ready", "Synced"]),
        (".metadata['name','absent']", ["x"]),
        (".metadata.name.deeper", []),
    ],
)
def test_a_path_finds_what_is_there(path: str, found: list[Any]):
    assert found == jsonpath.parse(path).find(VALUE)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "{}",
        ".a[",
        ".a[?(@.b==)]",
        ".a[?(@.b]",
        ".a[b]",
        ".a[::0]",
        ".a..",
        "..",
        ".a[?(b)]",
        "." + "a" * 2000,
        ".a{range .b}",
    ],
)
def test_what_is_no_path_is_refused(path: str):
    with pytest.raises(JsonPathError):
        jsonpath.parse(path).find(VALUE)


def test_a_search_that_finds_too_much_is_ended():
    wide = {"a": list(range(MOST + 1))}

    with pytest.raises(JsonPathError, match="more than"):
        jsonpath.parse(".a[*]").find(wide)
