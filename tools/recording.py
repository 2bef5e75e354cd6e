"""Recordings for the README: real commands on real clusters, drawn as they were printed.

    python -m tools.recording FOLDER

Clusters come and go with it. What takes long is shortened in the picture; what is printed is not
changed, but for tokens, which are left out.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import ViewportSize, sync_playwright

from knfleet.dev import ports
from knfleet.dev.binaries import locate
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.dev_folder import DevFolder
from tools.terminal import Said, picture, run

CLUSTERS = ("amsterdam", "lima")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WEB_SECONDS = 30.0
SCREEN: ViewportSize = {"width": 1180, "height": 640}
KNATIVE = """\
apiVersion: operator.knative.dev/v1beta1
kind: {kind}
metadata: {{name: {cluster}, namespace: {space}}}
spec:
  version: "{version}"
  clusterProfileRef: {{name: {cluster}, namespace: open-cluster-management}}
{rest}---
"""
JOIN = """
knfleet get token --context hub > token.txt
for pair in amsterdam:spoke1 lima:spoke2; do
  $(sed -n "s/<cluster_name>/${pair%:*}/; /^knfleet join/p" token.txt) \\
    --context "${pair#*:}" --image knfleet
done
"""
TROUBLE = """
kubectl --context spoke2 -n knative-serving annotate deployment activator \\
  dev.knfleet.dev/break=CrashLoopBackOff
knfleet wait --for=condition=Ready=False knative-serving/lima
"""


def files() -> dict[str, str]:
    """What is applied: Serving on both clusters, Eventing on one."""
    kourier = "  ingress: {kourier: {enabled: true}}\n"
    wanted = [
        ("KnativeServing", "knative-serving", "amsterdam", "1.23", kourier),
        ("KnativeServing", "knative-serving", "lima", "1.22", kourier),
        ("KnativeEventing", "knative-eventing", "lima", "1.23", ""),
    ]
    names = ("kind", "space", "cluster", "version", "rest")
    text = "".join(KNATIVE.format(**dict(zip(names, each, strict=True))) for each in wanted)
    return {"knative.yaml": text}


@contextmanager
def desk() -> Generator[tuple[Path, dict[str, str]]]:
    """A folder with clusters, and the variables to use them."""
    with tempfile.TemporaryDirectory(prefix="knfleet-recording-") as name:
        folder = Path(name)
        tools, _ = locate.search(locate.cache_folder())
        path = (Path(sys.executable).parent, tools["kubectl"].path.parent)
        environment = {
            **{key: value for key, value in os.environ.items() if key != "KO_DATA_PATH"},
            "PATH": os.pathsep.join([*map(str, path), os.environ["PATH"]]),
            "XDG_DATA_HOME": str(folder / "data"),
        }
        for command in ("knfleet bundle pull -q", "knfleet dev up -q --spokes 2"):
            subprocess.run(command.split(), cwd=folder, env=environment, check=True)
        (state,) = (folder / "data").rglob("state.json")
        ground = DevClusters(DevFolder(state.parent))
        try:
            environment["KUBECONFIG"] = str(DevFolder(state.parent).kubeconfig)
            yield folder, environment
        finally:
            ground.down()


class Recorder:
    """Types commands, and keeps those that are to be seen."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.scenes: list[Said] = []

    def unseen(self, command: str) -> None:
        """Do something that is not shown."""
        run(command, self.folder, self.environment)

    def show(self, command: str, *, really: str = "") -> None:
        """Do something that is; `really` has what only this machine needs."""
        started = time.monotonic()
        printed = run(really or command, self.folder, self.environment)
        self.scenes.append(Said(command, printed, time.monotonic() - started))


def fleet(recorder: Recorder) -> None:
    """Two clusters are taken in, get Knative, and one of them has a problem."""
    recorder.unseen("knfleet init --wait --context hub --image knfleet")
    recorder.unseen(JOIN)
    both = ",".join(CLUSTERS)
    recorder.unseen("kubectl config use-context hub")
    recorder.unseen("kubectl create namespace knative-serving")
    recorder.unseen("kubectl create namespace knative-eventing")
    recorder.show(f"knfleet accept --clusters {both} --wait")
    recorder.show("kubectl apply -f knative.yaml")
    recorder.show("knfleet wait --all --quiet")
    recorder.unseen(TROUBLE)
    recorder.show("knfleet status")
    recorder.show("knfleet status knative-serving/lima")


def dashboard(recorder: Recorder, target: Path) -> None:
    """The same fleet in a browser, if there is one on this machine."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"no {' or '.join(BROWSERS)} on the PATH: no picture of the dashboard")
        return
    folder = recorder.folder
    (port,) = ports.reserve(1, ports.DEFAULT_RANGE, folder / "knative.yaml")
    address = folder / "address.txt"
    web = ("knfleet", "web", "--context", "hub", "--url-file", str(address))
    with subprocess.Popen(
        [*web, "--address", f"127.0.0.1:{port}"], cwd=folder, env=recorder.environment
    ) as process:
        try:
            ends = time.monotonic() + WEB_SECONDS
            while not address.exists() or not address.read_text():
                if time.monotonic() > ends:
                    raise RuntimeError(f"no dashboard after {WEB_SECONDS:.0f} s")
                time.sleep(0.1)
            with sync_playwright() as playwright:
                chromium = playwright.chromium.launch(
                    executable_path=browser, args=["--no-sandbox"]
                )
                page = chromium.new_page(viewport=SCREEN, color_scheme="dark")
                page.goto(address.read_text().strip())
                page.get_by_text("knative-serving/lima").first.wait_for()
                page.screenshot(path=target / "dashboard.png")
                chromium.close()
        finally:
            process.terminate()


def main() -> None:
    """Make all recordings."""
    target = Path(sys.argv[1])
    with desk() as (folder, environment):
        for name, text in files().items():
            (folder / name).write_text(text)
        recorder = Recorder(folder, environment)
        fleet(recorder)
        dashboard(recorder, target)
    (target / "fleet.svg").write_text(
        picture("knfleet on a hub with two clusters", recorder.scenes)
    )


if __name__ == "__main__":
    main()
