"""Which release a `spec.version` means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.release.version import minor_of, newest_first, parse, target_version

RELEASES = ["1.0.0", "0.26.1", "0.26.0", "0.25.0", "0.24.0"]
NIGHTLY = [*RELEASES, "latest"]


@pytest.mark.parametrize(
    ("wanted", "releases", "expected"),
    [
        ("0.26", NIGHTLY, "0.26.1"),
        ("", NIGHTLY, "1.0.0"),
        ("latest", NIGHTLY, "latest"),
        ("LATEST", NIGHTLY, "1.0.0"),
        ("latest", RELEASES, "1.0.0"),
        ("Latest", RELEASES, "1.0.0"),
        ("0.22", NIGHTLY, "0.22"),
        ("1.9.0", NIGHTLY, "1.9.0"),
        ("0.26.0", NIGHTLY, "0.26.0"),
        ("v0.26", NIGHTLY, "v0.26"),
        ("v0.26.1", NIGHTLY, "v0.26.1"),
        ("1", NIGHTLY, "1"),
        ("badVersion", NIGHTLY, "badVersion"),
        ("0.2", NIGHTLY, "0.2"),
        ("", [], ""),
        ("latest", [], "latest"),
    ],
)
def test_a_wanted_version_means_a_release(wanted: str, releases: list[str], expected: str):
    assert target_version(wanted, releases) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("0.26", "0.26"), ("", ""), ("v1.2", "v1.2"), ("1.9.0", "1.9.0"), ("latest", "latest")],
)
def test_manifests_of_the_users_own_leave_the_version_as_written(wanted: str, expected: str):
    assert target_version(wanted, NIGHTLY, own_manifests=True) == expected


def test_releases_are_listed_newest_first_and_names_last():
    names = [
        "latest",
        "0.9.0",
        "0.10.0",
        "1.0.0",
        "1.0.0-rc.2",
        "1.0.0-rc.10",
        "1.0.0-1",
        "nightly",
    ]

    assert newest_first(names) == [
        "1.0.0",
        "1.0.0-rc.10",
        "1.0.0-rc.2",
        "1.0.0-1",
        "0.10.0",
        "0.9.0",
        "latest",
        "nightly",
    ]


@pytest.mark.parametrize(
    "text", ["", "v", "vlatest", "01.2.3", "1.2.3.4", "1.2-rc1", "1.2.3-01", "x", "9" * 200, "१.२"]
)
def test_a_text_that_is_no_version_is_not_read_as_one(text: str):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("version", "minor"),
    [("1.23.4", "1.23"), ("v1.23", "1.23"), ("latest", "latest"), ("LATEST", "latest"), ("x", "x")],
)
def test_plugins_are_found_by_minor_version(version: str, minor: str):
    assert minor_of(version) == minor


VERSIONS = st.builds("{}.{}.{}".format, *[st.integers(0, 30)] * 3)


@given(st.lists(VERSIONS, min_size=1, unique=True))
def test_nothing_wanted_means_the_newest(versions: list[str]):
    newest = target_version("", newest_first(versions))

    assert tuple(map(int, newest.split("."))) == max(
        tuple(map(int, version.split("."))) for version in versions
    )
