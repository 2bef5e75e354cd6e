"""Digests of our outcomes that were compared with the Knative Operator's, kept in the repository.

Comparing all samples with the Knative Operator itself takes long. As long as an outcome of ours is
the one that was compared, nothing new can be found. `make peers` compares and records.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from testbed.peers.operator import Outcome
from testbed.peers.samples import Sample
from tests.peers.comparison import by_name

PATH = Path(__file__).parent / "golden.json"


class Golden(Struct, frozen=True):
    """What was compared."""

    operator: str
    """The digest of the Knative Operator's modules."""
    samples: dict[str, str]
    """The digest of each sample with our outcome."""


def read() -> Golden:
    """The record."""
    return msgspec.json.decode(PATH.read_bytes(), type=Golden)


def write(operator: str, samples: Mapping[str, str]) -> None:
    """Replace the record."""
    golden = Golden(operator, dict(sorted(samples.items())))
    PATH.write_bytes(msgspec.json.format(msgspec.json.encode(golden), indent=1) + b"\n")


def digest(sample: Sample, outcome: Outcome) -> str:
    """Of a sample and all that was compared of an outcome."""
    given = msgspec.json.encode(sample.manifest).decode()
    compared = [outcome.problem, outcome.version, outcome.manifests]
    objects = by_name(outcome.objects, given)
    content = msgspec.json.encode([sample.digest, compared, objects], order="sorted")
    return hashlib.sha256(content).hexdigest()[:32]
