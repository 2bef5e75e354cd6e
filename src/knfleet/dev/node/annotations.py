"""How a test or a demonstration tells the dev node to treat a pod, or a webhook, differently.

The annotations are read from the pod itself and from its topmost owner (a Deployment, not the
ReplicaSet in between, which keeps copies of annotations that the Deployment has lost). Whatever the
pod says about a matter wins.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

HOLD = "dev.knfleet.dev/hold"
"""`"true"`: the pod runs, but is not ready."""
BREAK = "dev.knfleet.dev/break"
"""A reason such as CrashLoopBackOff: containers wait with it; a Job's pods fail."""
SLOW = "dev.knfleet.dev/slow"
"""A duration: the pod is ready, or a Job's pod done, only so long after its start."""
WEBHOOK = "dev.knfleet.dev/webhook"
"""On a Service of simulated pods: allow, deny or hang."""
WEBHOOK_DELAY = "dev.knfleet.dev/webhook-delay"
"""On a Service of simulated pods: a duration that passes before each answer."""

WEBHOOK_CHOICES = ("allow", "deny", "hang")
REASON = re.compile(r"[A-Z][A-Za-z]{0,62}")
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Behaviour(Struct, frozen=True):
    """What the annotations ask for; the default is a pod that simply works."""

    hold: bool = False
    broken: str = ""
    slow_seconds: float = 0.0


class WebhookBehaviour(Struct, frozen=True):
    """How the webhooks behind one Service answer."""

    answer: str = "allow"
    delay_seconds: float = 0.0


class AnnotationResult(Struct, frozen=True):
    """The behaviour asked for, and a sentence about each annotation that made no sense."""

    behaviour: Behaviour = Behaviour()
    problems: tuple[str, ...] = ()


def duration_seconds(text: str) -> float:
    """Seconds of `90`, `1.5s`, `250ms`, `2m` or `1h`; raises `ValueError` for anything else."""
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 5, 5s or 1m")
    return float(match[1]) * UNITS[match[2] or "s"]


def asked(pod: Mapping[str, str], owner: Mapping[str, str]) -> AnnotationResult:
    """What the annotations of a pod and of its topmost owner ask for; nonsense counts as absent."""
    annotations = {**owner, **pod}
    problems: list[str] = []
    hold, broken, slow = (annotations.get(key, "") for key in (HOLD, BREAK, SLOW))
    if hold not in {"", "true", "false"}:
        problems.append(f'{HOLD}: {hold!r} is neither "true" nor "false"')
    if broken and not REASON.fullmatch(broken):
        problems.append(f"{BREAK}: {broken!r} is not a reason such as CrashLoopBackOff")
        broken = ""
    seconds = 0.0
    if slow:
        try:
            seconds = duration_seconds(slow)
        except ValueError as error:
            problems.append(f"{SLOW}: {error}")
    return AnnotationResult(Behaviour(hold == "true", broken, seconds), tuple(problems))


def webhook_behaviour(annotations: Mapping[str, str]) -> WebhookBehaviour:
    """How a Service's webhooks answer; nonsense counts as absent."""
    answer = annotations.get(WEBHOOK, "allow")
    try:
        delay = duration_seconds(annotations.get(WEBHOOK_DELAY, "0"))
    except ValueError:
        delay = 0.0
    return WebhookBehaviour(answer if answer in WEBHOOK_CHOICES else "allow", delay)
