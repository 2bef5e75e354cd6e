"""The secret behind routing keys: made once, replaced from time to time. Pure.

The previous one is accepted until the next replacement, so that consumers which read a profile just
before still get through.
"""

import base64
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec import Struct

from knfleet.api.cluster.tunnel import KEY_SECRET
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Object

LIFETIME = timedelta(days=30)
SIZE = 32
CURRENT, PREVIOUS, MADE = "current", "previous", "made"


class RoutingSecrets(Struct, frozen=True):
    """What the Secret holds; never printed."""

    current: bytes
    previous: bytes
    made: datetime

    def __repr__(self) -> str:
        return f"RoutingSecrets({self.made})"

    @property
    def accepted(self) -> tuple[bytes, ...]:
        """The secrets whose keys are accepted."""
        return tuple(each for each in (self.current, self.previous) if each)


def routing_secrets(secret: Object | None) -> RoutingSecrets | None:
    """What a Secret holds; None when it is of no use."""
    data: dict[str, str] = (secret or {}).get("data") or {}
    try:
        current, previous, made = (
            base64.b64decode(data.get(name, ""), validate=True)
            for name in (CURRENT, PREVIOUS, MADE)
        )
        began = datetime.fromisoformat(made.decode())
    except ValueError:
        return None
    if len(current) < SIZE or began.tzinfo is None:
        return None
    return RoutingSecrets(current, previous, began)


def rotated(
    kept: RoutingSecrets | None,
    now: datetime,
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> RoutingSecrets:
    """The secrets to use now: the same ones until their time is over."""
    now = now.replace(microsecond=0)
    if kept is None:
        return RoutingSecrets(random(SIZE), b"", now)
    if now < kept.made + LIFETIME:
        return kept
    return RoutingSecrets(random(SIZE), kept.current, now)


def key_secret(kept: RoutingSecrets, namespace: str) -> Object:
    """The Secret that holds them."""
    parts = {CURRENT: kept.current, PREVIOUS: kept.previous, MADE: timestamp(kept.made).encode()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": KEY_SECRET, "namespace": namespace},
        "data": {name: base64.b64encode(part).decode() for name, part in parts.items()},
    }
