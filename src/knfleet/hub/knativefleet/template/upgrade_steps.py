"""Versions on the way to another one: one minor version at a time, up or down. Pure."""

from knfleet.release.version import LATEST, is_latest, parse


def next_version(installed: str, target: str) -> str:
    """What to install next on the way to a version; the version itself if it is the next step.

    Without a version, or with `latest`, the operator chooses, and reports what it cannot do.
    """
    old, new = parse(installed), parse(target)
    if old is None or new is None or old.major != new.major or old.parts < 2 or new.parts < 2:
        return target
    if abs(new.minor - old.minor) <= 1:
        return target
    step = 1 if new.minor > old.minor else -1
    return f"{old.major}.{old.minor + step}"


def steps_between(installed: str, target: str) -> tuple[str, ...]:
    """All versions that are installed on the way, the last one included."""
    found: list[str] = []
    while (step := next_version(installed, target)) != target:
        found.append(step)
        installed = step
    return (*found, target)


def is_reached(target: str, installed: str) -> bool:
    """Whether an installed version is the one that a template asks for."""
    if not installed:
        return False
    if target in ("", LATEST) or is_latest(target):
        return True
    new, old = parse(target), parse(installed)
    if new is None or old is None:
        return target == installed
    if new.parts == 2:
        return (new.major, new.minor) == (old.major, old.minor)
    return new.order() == old.order()
