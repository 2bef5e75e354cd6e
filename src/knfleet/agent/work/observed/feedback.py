"""Values of an object that feedback rules ask for."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from knfleet.api.meta import Object, api_group
from knfleet.api.work.manifestwork import FeedbackRule, FeedbackValue, FieldValue, JsonPath
from knfleet.expressions import jsonpath
from knfleet.expressions.jsonpath import JsonPathError

RAW_LENGTH = 1024
"""Characters of a list or object that is reported as JSON, unless a flag says otherwise."""
LONGEST = 4096
"""Characters of a text that is reported."""
MOST_VALUES = 256
"""Values of one object."""


def ready(type_: str) -> str:
    """The path of a condition's status."""
    return f'.status.conditions[?(@.type=="{type_}")].status'


WELL_KNOWN: dict[tuple[str, str], dict[str, str]] = {
    ("apps/v1", "Deployment"): {
        "ReadyReplicas": ".status.readyReplicas",
        "Replicas": ".status.replicas",
        "AvailableReplicas": ".status.availableReplicas",
    },
    ("apps/v1", "DaemonSet"): {
        "NumberReady": ".status.numberReady",
        "DesiredNumberScheduled": ".status.desiredNumberScheduled",
        "NumberAvailable": ".status.numberAvailable",
    },
    ("batch/v1", "Job"): {
        "JobComplete": ready("Complete"),
        "JobSucceeded": ".status.succeeded",
    },
    ("v1", "Pod"): {"PodReady": ready("Ready"), "PodPhase": ".status.phase"},
}
"""Values that WellKnownStatus reports, by kind."""


class FeedbackOptions(Struct, frozen=True):
    """What the agent reports."""

    raw_json: bool = False
    """Whether lists and objects are reported, as JSON."""
    raw_length: int = RAW_LENGTH


class Feedback(Struct, frozen=True):
    """The values, and what could not be had."""

    values: tuple[FeedbackValue, ...] = ()
    problems: tuple[str, ...] = ()


def read_feedback(
    manifest: Object, rules: Sequence[FeedbackRule], options: FeedbackOptions
) -> Feedback:
    """The values of an object; of several with one name the first counts."""
    values: dict[str, FeedbackValue] = {}
    problems: list[str] = []
    for path in paths(manifest, rules, problems):
        try:
            value = read_value(manifest, path, options)
        except ValueError as error:
            problems.append(str(error))
            continue
        if value is not None and len(values) < MOST_VALUES:
            values.setdefault(path.name, FeedbackValue(name=path.name, field_value=value))
    return Feedback(tuple(values.values()), tuple(problems))


def paths(
    manifest: Object, rules: Iterable[FeedbackRule], problems: list[str]
) -> Iterable[JsonPath]:
    """The paths that rules ask for in an object; rules that do not fit it are problems."""
    api_version, kind = str(manifest.get("apiVersion")), str(manifest.get("kind"))
    for rule in rules:
        if rule.type == "WellKnownStatus":
            known = WELL_KNOWN.get((api_version, kind))
            if known is None:
                problems.append(f"no well-known status values for {kind} in {api_version}")
                continue
            yield from (JsonPath(name=name, path=path) for name, path in known.items())
            continue
        for path in rule.json_paths:
            if path.version and path.version != api_group(api_version)[1]:
                problems.append(
                    f"version {path.version} of path {path.name} is not that of {api_version}"
                )
            else:
                yield path


def read_value(manifest: Object, path: JsonPath, options: FeedbackOptions) -> FieldValue | None:
    """The value at a path; none when there is nothing. Raises ValueError."""
    try:
        found = jsonpath.parse(path.path).find(manifest)
    except JsonPathError as error:
        raise ValueError(f"{path.name}: {error}") from error
    if not found:
        return None
    value: Any = found[0] if len(found) == 1 else found
    if value is None:
        return None
    return field_value(path.name, value, options)


def field_value(name: str, value: Any, options: FeedbackOptions) -> FieldValue:
    """A value as the status has it. Raises ValueError."""
    if isinstance(value, bool):
        return FieldValue(type="Boolean", boolean=value)
    if isinstance(value, int):
        return FieldValue(type="Integer", integer=value)
    if isinstance(value, str):
        if len(value) > LONGEST:
            raise ValueError(f"{name}: the text has more than {LONGEST} characters")
        return FieldValue(type="String", string=value)
    if not options.raw_json:
        kind = "an object" if isinstance(value, dict) else "a list"
        if isinstance(value, float):
            kind = "not a whole number"
        raise ValueError(
            f"{name}: the value is {kind}; only the feature RawFeedbackJsonString reports it"
        )
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if len(text) > options.raw_length:
        raise ValueError(f"{name}: the value has more than {options.raw_length} characters as JSON")
    return FieldValue(type="JsonRaw", json_raw=text)
