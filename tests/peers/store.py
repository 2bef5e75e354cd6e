"""What the Knative Operator made of samples, kept on disk by the digest of all that decides it."""

import gzip
import hashlib
from pathlib import Path

import msgspec

from knfleet.dev.binaries import locate
from knfleet.dev.dev_folder import write_private
from testbed.peers.goproject import GoProject
from testbed.peers.operator import Outcome
from testbed.peers.samples import Sample

COLLECTION = "1"
"""Changes when outcomes are observed in another way."""


class Store:
    """A folder of outcomes; a damaged one counts as absent."""

    def __init__(self, project: GoProject) -> None:
        self.folder = locate.cache_folder().parent.parent / "peers"
        self.folder.mkdir(parents=True, exist_ok=True)
        tools, _ = locate.search(locate.cache_folder())
        server = tools["kube-apiserver"].version if "kube-apiserver" in tools else ""
        self.ground = (project.digest, server, COLLECTION)

    def path(self, sample: Sample) -> Path:
        """The file of a sample's outcome."""
        text = "\n".join((*self.ground, sample.digest))
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:40]}.json.gz"

    def has(self, sample: Sample) -> bool:
        """Whether the outcome is known."""
        return self.path(sample).exists()

    def get(self, sample: Sample) -> Outcome | None:
        """The outcome of a sample, if it is known."""
        try:
            content = gzip.decompress(self.path(sample).read_bytes())
            return msgspec.json.decode(content, type=Outcome)
        except (OSError, EOFError, msgspec.DecodeError):
            return None

    def put(self, sample: Sample, outcome: Outcome) -> None:
        """Keep an outcome."""
        content = gzip.compress(msgspec.json.encode(outcome), compresslevel=4)
        write_private(self.path(sample), content)
