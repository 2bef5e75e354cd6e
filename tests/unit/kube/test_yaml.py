"""YAML is read with kubectl's meaning, and written so that kubectl reads the same again."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knfleet.kube.errors import KubeError
from knfleet.kube.yaml import YamlError, dump_all, load, load_all
from tests.support.yaml_table import MAPPINGS, REFUSED, SCALARS


def same(expected: object, actual: object) -> bool:
    """Equal, and whole where whole is expected; Python alone takes True for 1."""
    return expected == actual and type(expected) is type(actual)


@pytest.mark.parametrize(("text", "expected"), SCALARS)
def test_a_scalar_means_what_it_means_to_kubectl(text: str, expected: object) -> None:
    """Words, numbers, quotes, tags and blocks."""
    actual = load_all(f"k: {text}\n")[0]["k"]

    assert same(expected, actual), (expected, actual)


@pytest.mark.parametrize(("text", "expected"), MAPPINGS)
def test_keys_anchors_and_merges_mean_what_they_mean_to_kubectl(text: str, expected: Any) -> None:
    """Keys become strings, a merge overwrites what stands before it, anchors may be used again."""
    assert [expected] == load_all(text)


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_what_kubectl_refuses_is_refused_with_the_place(text: str, reason: str) -> None:
    """The message has the source, the document, the line and the reason."""
    with pytest.raises(YamlError, match=reason) as caught:
        load_all(f"a: 1\n---\n{text}\n", source="team.yaml")

    assert isinstance(caught.value, KubeError)
    assert "team.yaml, line " in str(caught.value)
    assert (caught.value.source, caught.value.document) == ("team.yaml", 2)
    assert caught.value.line >= 3


def test_documents_are_separated_and_empty_ones_left_out() -> None:
    """Separators, comments, end marks, a byte order mark and Windows line ends."""
    lines = ["\ufeff# first", "---", "a: 1", "---", "# nothing", "--- # third", "null", "---"]
    text = "\r\n".join([*lines, "b: |", "  x", "...", "---", ""])

    assert [{"a": 1}, {"b": "x\n"}] == load_all(text) == load_all(text.encode())


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n---\n", "~"])
def test_a_text_without_documents_is_an_empty_list(text: str) -> None:
    """Nothing is no error."""
    assert load_all(text) == []
    assert load(text) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb:\n  c: 1\n  d: 1\n  c: 2\n", 5),
        ("1: a\n'1': b\n", 2),
        ('{"a": {"b": 1,\n "b": 2}}', 2),
        ("{b: 1, c: 2,\n b: 3}", 2),
    ],
)
def test_a_key_that_comes_twice_is_refused_with_its_line(text: str, line: int) -> None:
    """Otherwise one of two settings is lost in silence."""
    with pytest.raises(YamlError, match="is there twice") as caught:
        load_all(text, source="f")

    assert line == caught.value.line


def test_an_alias_is_a_copy() -> None:
    """Changing one place of a manifest must not change another."""
    manifest = load_all("a: &x {b: [1]}\nc: *x\n")[0]

    manifest["a"]["b"].append(2)

    assert manifest["c"] == {"b": [1]}


def test_aliases_cannot_blow_up() -> None:
    """A few lines that stand for billions of values are refused."""
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 10):
        lines.append(f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 10)}]")

    with pytest.raises(YamlError, match="stand for more than"):
        load_all("\n".join(lines))


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 5000, '{"a":' * 5000, "- " * 5000 + "a"])
def test_nesting_is_bounded(text: str) -> None:
    """A text made to exhaust the stack is an error like any other."""
    with pytest.raises(YamlError):
        load_all(text)


def test_json_objects_are_read_one_after_the_other() -> None:
    """kubectl reads streams of JSON; numbers mean the same as in YAML."""
    text = '{"a": 1.0, "b": 18446744073709551616, "c": "\\ud83d\\ude00\\/"}\n{"d": [1e3]}{}'

    read = load_all(text)

    assert read == [{"a": 1, "b": 18446744073709551616.0, "c": "😀/"}, {"d": [1000]}, {}]
    assert (int, float) == (type(read[0]["a"]), type(read[0]["b"]))


def test_json_and_yaml_may_follow_one_another() -> None:
    """What begins as JSON may go on as YAML."""
    assert load_all('{"a": 1}\n---\nb: yes\n') == [{"a": 1}, {"b": True}]


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1e400}', '{"a": "\\ud800"}', '{"a": 1} x'])
def test_broken_json_is_refused(text: str) -> None:
    """What Python's own reader would let pass is not JSON."""
    with pytest.raises(YamlError):
        load_all(text + "\n: [")


@pytest.mark.parametrize("text", ["- a\n", "just text", "5", "[1]"])
def test_a_manifest_is_a_mapping(text: str) -> None:
    """A list or a single value is no object; `load` reads it."""
    with pytest.raises(YamlError, match="mapping is expected") as caught:
        load_all("a: 1\n---\n" + text)

    assert caught.value.document == 2
    assert load(text) in (["a"], "just text", 5, [1])


def test_load_takes_one_document() -> None:
    """A second document is not dropped in silence."""
    with pytest.raises(YamlError, match="one document"):
        load("a: 1\n---\nb: 2\n")


@pytest.mark.parametrize(("text", "line"), [(b"a: 1\nb: \xff\n", 2), ("a: 1\n\nb: \x01\n", 3)])
def test_bytes_that_are_no_text_are_refused(text: str | bytes, line: int) -> None:
    """The line of the first bad one is named."""
    with pytest.raises(YamlError) as caught:
        load_all(text, source="f")

    assert line == caught.value.line


def survives(value: float) -> bool:
    """Whether kubectl keeps a float; whole ones beyond 53 bits become other integers there too."""
    return not value.is_integer() or not 2**53 < abs(value) < 2**63


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(survives)
    | st.text()
    | st.text("yno0123456789eE+-._:x~<=#|>'\"&*!%@`{}[], \t\n\r\x85\u2028\ufeff")
    | st.sampled_from([text for text, _ in SCALARS]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=10,
)
MANIFESTS = st.dictionaries(
    st.text() | st.sampled_from(["yes", "1", "<<", "", "~"]), JSON_VALUES, max_size=4
)


@settings(deadline=None, max_examples=60)
@given(st.lists(MANIFESTS, max_size=2))
def test_what_is_written_is_read_back(objects: list[dict[str, Any]]) -> None:
    """Dump and load are inverse for every JSON value."""
    assert objects == load_all(dump_all(objects))


def test_written_yaml_looks_like_kubectls() -> None:
    """Order is kept, text with line breaks is a block, words that mean something are quoted."""
    manifest: dict[str, Any] = {
        "kind": "ConfigMap",
        "data": {"on": "yes", "port": "080", "when": "2020-01-01", "at": "22:22", "text": "a\nb\n"},
        "empty": [{}, [], None, ""],
        "list": [{"a": 1, "b": 1.5}],
        "none": {},
    }

    assert [manifest] == load_all(dump_all([manifest]))
    assert dump_all([manifest, {"x": "é"}]) == (
        "kind: ConfigMap\n"
        "data:\n  'on': 'yes'\n  port: '080'\n  when: '2020-01-01'\n  at: '22:22'\n"
        "  text: |\n    a\n    b\n"
        "empty:\n- {}\n- []\n- null\n- ''\n"
        "list:\n- a: 1\n  b: 1.5\n"
        "none: {}\n"
        "---\nx: é\n"
    )


@pytest.mark.parametrize("value", [float("inf"), b"x", {1: 2}, object(), (1,), "\ud800"])
def test_what_json_cannot_hold_is_not_written(value: object) -> None:
    """Nothing is turned into a string on the way."""
    with pytest.raises(YamlError):
        dump_all([{"a": value}])


LONG = "x" * 60_000


@pytest.mark.parametrize(
    "text",
    [
        f"a: &a {LONG}\nb: [{', '.join(['*a'] * 1000)}]",
        f"a: &a {{k: {LONG}}}\nb: [{', '.join(['*a'] * 1000)}]",
        "\n---\n".join([f"a: &a {'x' * 6000}\nb: [{', '.join(['*a'] * 100)}]"] * 100),
        f"a: &a {{<<: {{k: {LONG}}}}}\nb: [{', '.join(['*a'] * 1000)}]",
        f"{{? &a {LONG}: 1}}\n---\na: &a {LONG}\nb: [{', '.join(['*a'] * 1000)}]",
    ],
)
def test_aliases_stand_for_a_limited_number_of_bytes(text: str) -> None:
    """A text of a few kilobytes would become one of hundreds of megabytes when it is written."""
    with pytest.raises(YamlError, match="aliases stand for more than"):
        load_all(text)


@pytest.mark.parametrize("text", ["a: [%s]", '{"a": [%s]}'])
def test_a_text_has_a_limited_number_of_values(text: str) -> None:
    """Each takes many times the memory of its three characters."""
    with pytest.raises(YamlError, match="more than 1000000 values"):
        load_all(text % ",".join(["[]"] * 1_000_001))
