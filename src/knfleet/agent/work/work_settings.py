"""How works are handled, as the agent's flags say."""

from datetime import timedelta

from msgspec import Struct

from knfleet.agent.work.observed.feedback import FeedbackOptions


class WorkSettings(Struct, frozen=True):
    """How works are handled."""

    eviction_grace: timedelta = timedelta(minutes=60)
    """How long objects stay whose work the hub does not have any more."""
    feedback: FeedbackOptions = FeedbackOptions()
    poll_seconds: float = 60.0
    """How often objects are read that are too many to be watched by name."""
    executor_caches: bool = False
    """Whether it is remembered for longer what executors may do."""


DEFAULTS = WorkSettings()
