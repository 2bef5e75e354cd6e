"""Whether an installed version may become another one in a single step.

Knative supports one minor version at a time, up or down. The messages are those that users of the
Knative Operator know.
"""

from knfleet.release.errors import NotEligible
from knfleet.release.version import LATEST, ReleaseVersion, parse, prefixed

NEIGHBOURS = {(0, 26), (1, 0)}
"""The one pair of minor versions that follow each other across a major version."""


def check_migration(installed: str, target: str, *, kind: str = "KnativeServing") -> None:
    """Raise `NotEligible` unless `installed` (empty: nothing yet) may become `target`."""
    if target == LATEST:
        return
    new = parse_target(target)
    if installed in ("", LATEST):
        return
    old = parse(installed)
    if old is None or old.parts < 2:
        raise NotEligible(
            f"the installed version {prefixed(installed)} in status.version is not in a valid "
            f"semantic versioning format; correct or remove it"
        )
    ends = f"The installed {kind} version is {prefixed(installed)}"
    if old.major != new.major:
        if {(old.major, old.minor), (new.major, new.minor)} == NEIGHBOURS:
            return
        raise NotEligible(f"not supported to upgrade or downgrade across the MAJOR version. {ends}")
    if abs(old.minor - new.minor) > 1:
        raise NotEligible(
            f"not supported to upgrade or downgrade across multiple MINOR versions. {ends}"
        )


def parse_target(target: str) -> ReleaseVersion:
    """The target as a version that has at least a minor number."""
    version = parse(target)
    if version is None:
        raise NotEligible(
            f"target version {prefixed(target)} is not in a valid semantic versioning format"
        )
    if version.parts < 2:
        raise NotEligible(
            f"target version {prefixed(target)} should at least include the major and minor numbers"
        )
    return version
