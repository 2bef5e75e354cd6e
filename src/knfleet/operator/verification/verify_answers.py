"""Reasons of the condition Verified, and the answers that carry them. Pure."""

from knfleet.api.knative.verification import VerifyAnswer
from knfleet.api.texts import bounded

SUCCEEDED = "VerificationSucceeded"
FAILED = "VerificationFailed"
RUNNING = "Verifying"
SIMULATED = "PodsSimulated"
FORBIDDEN = "VerificationForbidden"
INTERRUPTED = "VerificationInterrupted"
INVALID = "InvalidVerification"
MESSAGE_BYTES = 1000


def unknown(reason: str, text: str) -> VerifyAnswer:
    """Nothing was found out."""
    return VerifyAnswer("Unknown", reason, bounded(text, MESSAGE_BYTES))


def failure(text: str, reason: str = FAILED) -> VerifyAnswer:
    """Something does not work."""
    return VerifyAnswer("False", reason, bounded(text, MESSAGE_BYTES))


def success(text: str) -> VerifyAnswer:
    """Everything works."""
    return VerifyAnswer("True", SUCCEEDED, bounded(text, MESSAGE_BYTES))
