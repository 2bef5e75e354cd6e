"""Verifications of the custom resources of one kind: which are asked for, run and answered."""

import asyncio
from contextlib import suppress

from msgspec import Struct

from knfleet.api.knative.conditions import find
from knfleet.api.knative.verification import (
    DEFAULT_IMAGE,
    VERIFIED,
    VERIFIED_CONDITION,
    VERIFY,
    BadVerifyRequest,
    VerifyAnswer,
    VerifyRequest,
    parse_request,
    request_name,
)
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from knfleet.operator.installation_record import InstallationRecord
from knfleet.operator.installation_registry import LookAgain
from knfleet.operator.kinds import KnativeKind, annotations_of
from knfleet.operator.status.status_builder import StatusBuilder
from knfleet.operator.targets.targets import Target
from knfleet.operator.verification.verify_answers import INVALID, RUNNING, failure, unknown
from knfleet.operator.verification.verify_run import VerifyRun
from knfleet.runtime.logs import log

AT_ONCE = 16
"""So many verifications of a kind run at a time; others wait for their turn."""


class VerificationTask(Struct, frozen=True):
    """A verification as a part of the life of an installation."""

    record: InstallationRecord
    key: Key
    request: VerifyRequest
    verifier: VerifyRun
    version: str
    slots: asyncio.Semaphore
    look_again: LookAgain

    async def run(self) -> None:
        """Verify, and have the result reported."""
        async with self.slots:
            answer = await self.verifier.run(self.request)
        message = f"{self.version}: {answer.message}"
        self.record.verified = (
            self.request.request,
            VerifyAnswer(answer.status, answer.reason, message),
        )
        log.info("verified", key=str(self.key), status=answer.status, reason=answer.reason)
        self.look_again(Request(HUB, self.key), 0.0)


class VerificationRegistry:
    """The verifications of one kind."""

    def __init__(
        self, kind: KnativeKind, hub: Client, look_again: LookAgain, *, image: str = DEFAULT_IMAGE
    ) -> None:
        self.kind = kind
        self.hub = hub
        self.look_again = look_again
        self.image = image
        """Of requests that name none."""
        self.slots = asyncio.Semaphore(AT_ONCE)

    def report(self, record: InstallationRecord, manifest: Object, builder: StatusBuilder) -> None:
        """Put into a status what is known of the verification that is asked for."""
        text = annotations_of(manifest).get(VERIFY, "")
        if not text or is_answered(manifest):
            return
        try:
            request = parse_request(text)
        except BadVerifyRequest as error:
            problem = f"the annotation {VERIFY} cannot be used: {error}"
            builder.verified(failure(problem, INVALID))
            return
        if record.verified is not None and record.verified[0] == request.request:
            builder.verified(record.verified[1])
        elif record.verifying != request.request:
            waits = "requested; it begins when the installation is Ready"
            builder.verified(unknown(RUNNING, waits))

    def begin(
        self, record: InstallationRecord, manifest: Object, target: Target, builder: StatusBuilder
    ) -> None:
        """Run the verification that is asked for, unless that was done or is in progress."""
        text = annotations_of(manifest).get(VERIFY, "")
        if not text or is_answered(manifest) or record.lifetime is None:
            return
        try:
            request = parse_request(text)
        except BadVerifyRequest:
            return
        known = record.verified
        if record.verifying == request.request or (known and known[0] == request.request):
            return
        record.verifying = request.request
        key = Key.of(manifest)
        verifier = VerifyRun(
            target.client, self.kind.type.component, key.namespace, default_image=self.image
        )
        version = f"{self.kind.title} {builder.status.version}"
        task = VerificationTask(
            record, key, request, verifier, version, self.slots, self.look_again
        )
        record.lifetime.add(task, "verification")
        builder.verified(unknown(RUNNING, f"{version} is being verified"))

    async def acknowledge(self, record: InstallationRecord, manifest: Object) -> None:
        """Note on the custom resource which request the condition answers, once it is written."""
        text = annotations_of(manifest).get(VERIFY, "")
        if not text or is_answered(manifest):
            return
        name = request_name(text)
        condition = find(record.status.conditions, VERIFIED_CONDITION)
        if condition is None or condition.reason == RUNNING:
            return
        known = record.verified
        if condition.reason != INVALID and (known is None or known[0] != name):
            return
        if annotations_of(manifest).get(VERIFIED) == name:
            return
        patch: Object = {
            "metadata": {"uid": record.uid, "annotations": {VERIFIED: name}},
        }
        with suppress(NotFound):
            await self.hub.patch(self.kind.resource, Key.of(manifest), patch)


def is_answered(manifest: Object) -> bool:
    """Whether the newest request was answered."""
    annotations = annotations_of(manifest)
    name = request_name(annotations.get(VERIFY, ""))
    return name != "invalid" and annotations.get(VERIFIED) == name
