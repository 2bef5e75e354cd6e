"""Files that registries keep beside images: release files, charts."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from knfleet.oci.image_manifest import OCI_MANIFEST, Descriptor, ImageManifest
from knfleet.oci.layout_folder import IMAGE, NAME, LayoutFolder


class Artifact(Struct, frozen=True):
    """A file, and as what it is kept."""

    path: Path
    layer_type: str
    config_type: str
    artifact_type: str = ""
    config_content: bytes = b"{}"
    annotations: Mapping[str, str] = {}


def save_artifact(layout: LayoutFolder, name: str, artifact: Artifact) -> Descriptor:
    """Save a file as an artifact, as registries keep other things than images."""
    config = artifact.config_content
    layers = (file_part(layout, artifact.path, artifact.layer_type),)
    manifest = ImageManifest(
        schema_version=2,
        media_type=OCI_MANIFEST,
        artifact_type=artifact.artifact_type,
        config=Descriptor(artifact.config_type, layout.add(config), len(config)),
        layers=layers,
        annotations=dict(artifact.annotations),
    )
    content = msgspec.json.encode(manifest, order="sorted")
    entry = Descriptor(
        media_type=manifest.media_type,
        digest=layout.add(content),
        size=len(content),
        annotations={IMAGE: name, NAME: name},
        artifact_type=artifact.artifact_type,
    )
    layout.name(entry)
    return entry


def file_part(layout: LayoutFolder, path: Path, media_type: str) -> Descriptor:
    """Keep a file of moderate size as a blob."""
    content = path.read_bytes()
    return Descriptor(media_type, layout.add(content), len(content))
