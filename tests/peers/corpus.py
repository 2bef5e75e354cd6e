"""Custom resources of which the Knative Operator and knfleet must make the same.

Together they use every field of both kinds and every step of rendering. Fields that do not touch
one another share a sample, so that fewer installs are needed; the names say what is meant.
"""

from testbed.peers.samples import Sample
from tests.peers.corpus_common import COMMON
from tests.peers.corpus_eventing import EVENTING
from tests.peers.corpus_manifests import MANIFESTS
from tests.peers.corpus_serving import SERVING
from tests.peers.corpus_workloads import WORKLOADS

CORPUS: tuple[Sample, ...] = (*SERVING, *EVENTING, *COMMON, *WORKLOADS, *MANIFESTS)
BY_NAME = {sample.name: sample for sample in CORPUS}
