"""Inputs that fuzzing has found, by reader: each once led to something that must not happen."""

from pathlib import Path

FOLDER = Path(__file__).parent / "found"


def kept(target: str) -> list[bytes]:
    """What was found for one reader."""
    return [path.read_bytes() for path in sorted((FOLDER / target).glob("*"))]
