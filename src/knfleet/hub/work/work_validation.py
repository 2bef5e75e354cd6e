"""What of a ManifestWork only a program can check: its total size, and manifests given twice.

Pure; the messages are those of Open Cluster Management, which people and programs look for.
"""

import msgspec
from msgspec import Raw, Struct

from knfleet.api.meta import Object
from knfleet.hub.webhook.admission_review import AdmissionRequest
from knfleet.kube.untrusted_json import decode_json

SIZE_LIMIT = 500 * 1024
"""Bytes that the manifests of one work may have together."""
ESCAPED = {b"<": 5, b">": 5, b"&": 5, b"\xe2\x80\xa8": 3, b"\xe2\x80\xa9": 3}
"""What API servers escape in JSON and we do not, and by how many bytes that is longer."""


class ManifestName(Struct, frozen=True):
    """Where an object is."""

    name: str = ""
    namespace: str = ""


class ManifestIdentity(Struct, frozen=True, rename="camel"):
    """Which object a manifest is."""

    api_version: str = ""
    kind: str = ""
    metadata: ManifestName = ManifestName()


class SentWorkload(Struct, frozen=True):
    """The manifests, as they were sent."""

    manifests: list[Raw] = []


class SentSpec(Struct, frozen=True):
    """The part of a work that is looked at."""

    workload: SentWorkload = SentWorkload()


class SentWork(Struct, frozen=True):
    """A ManifestWork, as far as it is looked at."""

    spec: SentSpec = SentSpec()


def validate(request: AdmissionRequest) -> str:
    """What is wrong with a work; empty when nothing is."""
    try:
        work = decode_json(request.object, SentWork)
    except msgspec.DecodeError as error:
        return f"the ManifestWork cannot be read: {error}"
    return problem(work.spec.workload.manifests)


def problem(manifests: list[Raw]) -> str:
    """What is wrong with the manifests of a work; empty when nothing is."""
    size = sum(encoded_size(len(each)) for each in manifests)
    if size > SIZE_LIMIT:
        return f"the size of manifests is {size} bytes which exceeds the {SIZE_LIMIT} limit"
    seen: set[ManifestIdentity] = set()
    for manifest in manifests:
        try:
            each = decode_json(manifest, ManifestIdentity)
        except msgspec.DecodeError as error:
            return f"a manifest cannot be read: {error}"
        if each in seen:
            return (
                f"duplicate manifest for resource {each.metadata.namespace}/{each.metadata.name}"
                f" with resource type {each.api_version}.{each.kind}"
            )
        seen.add(each)
    return ""


def encoded_size(length: int) -> int:
    """What a manifest counts: its JSON in two envelopes, each with a mark and a length."""
    for _ in range(2):
        length += 1 + varint_size(length)
    return length


def varint_size(number: int) -> int:
    """Bytes of a number as protocol buffers write it."""
    return max(1, -(-number.bit_length() // 7))


def manifest_size(manifest: Object) -> int:
    """What a manifest counts that has not been sent yet."""
    written = msgspec.json.encode(manifest)
    more = sum(written.count(each) * longer for each, longer in ESCAPED.items())
    return encoded_size(len(written) + more)
