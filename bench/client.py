"""CPU per object that our client and the official one need for the same work on the same server.

    KUBECONFIG=… python -m bench.client [rounds]

The server is the one of KUBECONFIG; the work is done in the namespace `knfleet-bench`: 500
ConfigMaps of a kilobyte, 32 at a time, and the best of the rounds counts. Wall time is the server's
and is not shown. The official client is fetched once into the user's cache folder.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import platformdirs

OFFICIAL = "kubernetes==37.0.2"
ROOT = Path(__file__).parent.parent


def official_packages() -> Path:
    """The folder with the official client and what it needs."""
    folder = platformdirs.user_cache_path("knfleet") / "bench" / OFFICIAL.replace("==", "-")
    if not (folder / "kubernetes").is_dir():
        uv = Path(sys.executable).parent / "uv"
        subprocess.run(
            [uv, "pip", "install", "-q", "--python", sys.executable, "--target", folder, OFFICIAL],
            check=True,
        )
    return folder


def run(module: str, rounds: int, packages: Path | None = None) -> dict[str, float]:
    """The figures of one client, from a process of its own."""
    places = [str(ROOT), *([str(packages)] if packages else [])]
    done = subprocess.run(
        [sys.executable, "-m", module, str(rounds)],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    )
    return json.loads(done.stdout)


def table(ours: dict[str, float], official: dict[str, float]) -> str:
    """The figures side by side."""
    lines = [f"{'ms of CPU per object':22} {'knfleet':>9} {OFFICIAL:>20} {'ratio':>7}"]
    for name, figure in ours.items():
        ratio = official[name] / figure
        lines.append(f"{name:22} {figure:9.3f} {official[name]:20.3f} {ratio:6.1f}x")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    if "KUBECONFIG" not in os.environ:
        sys.exit("set KUBECONFIG to a cluster for the measurement, e.g. of `knfleet dev up`")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    packages = official_packages()
    print(table(run("bench.knative.ours", rounds), run("bench.knative.official", rounds, packages)))


if __name__ == "__main__":
    main()
