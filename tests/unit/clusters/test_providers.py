"""The provider file: what it may say, and how a change of it is taken up."""

import json
from pathlib import Path

import pytest

from knfleet.clusters.provider_file import Provider, ProviderFile, ProviderFileError, parse

EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/true"}


def written(*entries: object) -> bytes:
    """A provider file."""
    return json.dumps({"providers": list(entries)}).encode()


def only(entry: object) -> Provider:
    """The provider of a file with one entry."""
    (provider,) = parse(written(entry), "providers.json")
    return provider


def test_a_provider_is_read_with_all_that_it_says():
    """Null means the same as nothing."""
    provider = only(
        {
            "name": "azure",
            "execConfig": {**EXEC, "args": ["login"], "env": [{"name": "A", "value": "b"}]},
            "profileSourcedCLIArgsPolicy": "Append",
            "profileSourcedEnvVarsPolicy": None,
        }
    )

    assert (provider.name, provider.problem) == ("azure", "")
    assert provider.exec.args == ("login",)
    assert (provider.args_policy, provider.env_policy) == ("Append", "")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"providers: []", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"providers":' + b"[" * 100_000, "not JSON"),
        (b"[]", '{"providers": [...]}'),
        (b'{"providers": {}}', '{"providers": [...]}'),
        (written("azure"), "provider 1: it has no name"),
        (written({"name": ""}), "provider 1: it has no name"),
        (written({"name": "a"}, {"name": "a"}), "provider 2: the name 'a' is there already"),
    ],
)
def test_what_is_no_provider_file_is_refused_with_its_name_and_the_remedy(
    content: bytes, said: str
):
    """Nothing of it can be used."""
    with pytest.raises(ProviderFileError) as caught:
        parse(content, "providers.json")

    assert str(caught.value).startswith("providers.json: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"name": "a"}, "execConfig is missing"),
        ({"name": "a", "execConfig": {}}, "execConfig.command is missing"),
        ({"name": "a", "execConfig": {"command": "x"}}, "apiVersion is missing"),
        (
            {"name": "a", "execConfig": {**EXEC, "apiVersion": "v7"}},
            "apiVersion v7 is not supported",
        ),
        (
            {"name": "a", "execConfig": EXEC, "profileSourcedCLIArgsPolicy": "Sometimes"},
            "profileSourcedCLIArgsPolicy: Invalid enum value 'Sometimes'",
        ),
        ({"name": "a", "execConfig": {**EXEC, "args": "--all"}}, "execConfig.args"),
        (
            {"name": "a", "execConfig": {**EXEC, "env": [{"name": "A=B", "value": "c"}]}},
            "a variable has no usable name",
        ),
    ],
)
def test_a_bad_entry_spoils_no_other(entry: object, said: str):
    """It says what is wrong to whoever needs it."""
    bad, good = parse(written(entry, {"name": "good", "execConfig": EXEC}), "providers.json")

    assert bad.problem.startswith("providers.json: provider 1 (a): ")
    assert said in bad.problem
    assert good.problem == ""


def test_a_file_without_providers_lists_none():
    """Which is told to whoever wants one."""
    assert parse(b"{}", "f") == parse(b'{"providers": null}', "f") == ()


def test_a_provider_shows_no_secret():
    """Variables may hold some."""
    secret = [{"name": "PASSWORD", "value": "hunter2"}]
    provider = only({"name": "a", "execConfig": {**EXEC, "args": ["hunter2"], "env": secret}})

    assert "hunter2" not in repr(provider)


def test_a_changed_file_is_taken_up_and_a_bad_one_is_not(tmp_path: Path):
    """As a kubelet changes a ConfigMap: by a symbolic link to another folder."""
    for name, content in (
        ("one", written({"name": "a", "execConfig": EXEC})),
        ("two", b"{"),
        ("three", written({"name": "b", "execConfig": EXEC})),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_bytes(content)
    link = tmp_path / "data"
    link.symlink_to("one")
    file = ProviderFile(link / "config.json")
    changes: list[tuple[str, ...]] = []
    file.on_change(lambda: changes.append(tuple(each.name for each in file.providers)))

    def swap(name: str) -> None:
        (tmp_path / "fresh").symlink_to(name)
        (tmp_path / "fresh").rename(link)
        file.reload_if_changed()

    file.load()
    file.reload_if_changed()
    assert changes == []
    swap("two")
    assert changes == [("a",)]
    assert [each.name for each in file.providers] == ["a"]
    assert "not JSON" in file.problem
    swap("three")
    assert changes == [("a",), ("b",)]
    assert file.problem == ""


def test_a_file_that_goes_away_takes_nothing_with_it(tmp_path: Path):
    """What it said last stays, and the problem is told."""
    path = tmp_path / "config.json"
    path.write_bytes(written({"name": "a", "execConfig": EXEC}))
    file = ProviderFile(path)
    file.load()
    path.unlink()

    file.reload_if_changed()

    assert [each.name for each in file.providers] == ["a"]
    assert "cannot be read: No such file" in file.problem


def test_a_file_that_is_of_no_use_at_the_start_is_followed(tmp_path: Path):
    """Each new problem is told once, and the end of it, also where no provider is listed."""
    path = tmp_path / "config.json"
    file = ProviderFile(path)
    problems: list[str] = []
    file.on_change(lambda: problems.append(file.problem))

    for content in (b"", b"", b"{", b'{"providers": []}'):
        if content:
            path.write_bytes(content)
        file.reload_if_changed()

    assert len(problems) == 3
    assert "cannot be read: No such file" in problems[0]
    assert "not JSON" in problems[1]
    assert problems[2] == ""


@pytest.mark.parametrize("make", ["nothing", "folder", "large"])
def test_a_file_that_cannot_be_read_at_the_start_is_an_error(tmp_path: Path, make: str):
    """It names the file and the flag, or the limit."""
    path = tmp_path / "config.json"
    if make == "folder":
        path.mkdir()
    elif make == "large":
        path.write_bytes(b" " * 2 * 1024 * 1024)

    with pytest.raises(ProviderFileError, match=str(path)):
        ProviderFile(path).load()
