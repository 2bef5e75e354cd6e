"""Which installed version may become which."""

import pytest

from knfleet.release.errors import NotEligible
from knfleet.release.upgrade_path import check_migration


@pytest.mark.parametrize(
    ("installed", "target"),
    [
        ("", "0.24.2"),
        ("0.23.0", "0.24.0"),
        ("0.26.1", "1.0.0"),
        ("1.0.0", "0.26.1"),
        ("0.25.0", "latest"),
        ("latest", "0.25.0"),
        ("0.25.0", "0.25.0"),
        ("0.24.0", "0.25"),
        ("1.23.0", "1.22.1"),
        ("1.23.0", "v1.23.4"),
        ("v1.22.0", "1.23.0"),
    ],
)
def test_one_minor_version_up_or_down_is_eligible(installed: str, target: str):
    check_migration(installed, target)


ACROSS_MAJOR = "not supported to upgrade or downgrade across the MAJOR version."
ACROSS_MINORS = "not supported to upgrade or downgrade across multiple MINOR versions."


@pytest.mark.parametrize(
    ("installed", "target", "message"),
    [
        (
            "0.25.0",
            "1.0.0",
            f"{ACROSS_MAJOR} The installed KnativeServing version is v0.25.0",
        ),
        (
            "1.0.0",
            "0.25.0",
            f"{ACROSS_MAJOR} The installed KnativeServing version is v1.0.0",
        ),
        (
            "0.13.0",
            "1.0.0",
            f"{ACROSS_MAJOR} The installed KnativeServing version is v0.13.0",
        ),
        (
            "0.23.0",
            "0.25.0",
            f"{ACROSS_MINORS} The installed KnativeServing version is v0.23.0",
        ),
        (
            "1.23.0",
            "1.21.3",
            f"{ACROSS_MINORS} The installed KnativeServing version is v1.23.0",
        ),
        (
            "",
            "badVersion",
            "target version vbadVersion is not in a valid semantic versioning format",
        ),
        ("", "", "target version v is not in a valid semantic versioning format"),
        (
            "",
            "1",
            "target version v1 should at least include the major and minor numbers",
        ),
        ("", "LATEST", "target version vLATEST is not in a valid semantic versioning format"),
    ],
)
def test_anything_else_is_refused_in_the_words_users_know(
    installed: str, target: str, message: str
):
    with pytest.raises(NotEligible) as caught:
        check_migration(installed, target)

    assert str(caught.value) == message


def test_the_message_names_the_kind_it_speaks_of():
    with pytest.raises(NotEligible, match=r"installed KnativeEventing version is v1\.20\.0"):
        check_migration("1.20.0", "1.23.0", kind="KnativeEventing")


def test_a_status_that_no_installation_writes_is_an_error_and_not_a_crash():
    with pytest.raises(NotEligible, match=r"status\.version"):
        check_migration("v", "1.23.0")
