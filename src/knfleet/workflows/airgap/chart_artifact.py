"""A Helm chart as registries keep it, so that `helm install oci://…` finds it."""

import gzip
import tarfile
import zlib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from knfleet.kube.yaml import load_all
from knfleet.oci.artifact import Artifact
from knfleet.oci.errors import BadReference
from knfleet.oci.image_reference import TAG

CONFIG = "application/vnd.cncf.helm.config.v1+json"
LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
MOST_BYTES = 20 * 1024 * 1024
MOST_CHART_FILE = 1024 * 1024


class SavedChart(Struct, frozen=True):
    """A packaged chart, and the name that it has among images."""

    name: str
    artifact: Artifact


def saved_chart(path: Path) -> SavedChart:
    """The chart in a .tgz that `helm package` made; raises `BadReference`."""
    about = chart_file(path)
    name, version = str(about.get("name") or ""), str(about.get("version") or "")
    # Tags have no plus; Helm writes it like this as well.
    tag = version.replace("+", "_")
    if not name or not TAG.fullmatch(tag):
        raise BadReference(f"{path}: Chart.yaml has no name, or no version that can be a tag")
    artifact = Artifact(path, LAYER, CONFIG, config_content=msgspec.json.encode(about))
    return SavedChart(f"knfleet.dev/charts/{name}:{tag}", artifact)


def chart_file(path: Path) -> dict[str, Any]:
    """What the Chart.yaml of a packaged chart says."""
    if path.is_dir():
        raise BadReference(f"{path}: is a folder; package the chart first with `helm package`")
    if path.stat().st_size > MOST_BYTES:
        raise BadReference(f"{path}: is larger than {MOST_BYTES >> 20} MiB, which no chart is")
    try:
        with gzip.open(path) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as tar:
            for member in tar:
                names = member.name.split("/")
                if len(names) == 2 and names[1] == "Chart.yaml" and member.isreg():
                    file = tar.extractfile(member)
                    content = file.read(MOST_CHART_FILE) if file else b""
                    return next(iter(load_all(content)))
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadReference(f"{path}: is no packaged chart ({error})") from None
    raise BadReference(f"{path}: has no Chart.yaml; package the chart with `helm package`")
