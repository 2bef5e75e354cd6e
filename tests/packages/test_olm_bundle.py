"""The bundle for the Operator Lifecycle Manager, checked by its own validators."""

import asyncio
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from knfleet.dev.progress_reporter import SilentProgress
from knfleet.install.olm_bundle import bundle
from knfleet.install.operator_manifests import everything
from knfleet.install.operator_options import OperatorInstall
from knfleet.kube.yaml import load_all
from testbed.go_build import built
from tests.packages.conftest import IMAGE, VERSION, MadeRelease

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("packages")]
PACKAGE = "github.com/operator-framework/api/cmd/operator-verify"


@pytest.fixture(scope="session")
def validator() -> Path:
    """The program that catalogs check bundles with, built unless it is kept."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that the validator cannot be built")
    return asyncio.run(built("olm", PACKAGE, "operator-verify", SilentProgress()))


def service_version(folder: Path) -> dict[str, Any]:
    (found,) = load_all((folder / "manifests/knfleet.clusterserviceversion.yaml").read_text())
    return found


EXPECTED = (
    # It does not look at the groups of the kinds that a role names.
    "is using APIs which were deprecated and removed",
    'The \\"operatorhub\\" validator is deprecated',
)


def complaints(validator: Path, folder: Path) -> list[str]:
    """Errors and warnings about the manifests of a bundle."""
    flags = ("--operatorhub_validate", "--object_validate")
    done = subprocess.run(
        [validator, "manifests", folder / "manifests", *flags],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return [line for line in done.stderr.splitlines() if not any(each in line for each in EXPECTED)]


def test_the_bundle_of_a_release_is_valid(
    release: MadeRelease, validator: Path, tmp_path: Path
) -> None:
    """Version and image are those of the release, and nothing is even warned about."""
    with tarfile.open(release.files / f"knfleet-{VERSION}-olm-bundle.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")

    found = service_version(tmp_path)
    assert complaints(validator, tmp_path) == []
    assert found["spec"]["version"] == VERSION
    assert found["metadata"]["annotations"]["containerImage"] == f"{IMAGE}:{VERSION}"


def test_a_bundle_that_is_not_valid_is_refused(validator: Path, tmp_path: Path) -> None:
    """A CRD that it says it has is missing; so the check above means something."""
    for name, text in bundle("example/knfleet:v1", "https://example.com/org").items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if "knativeservings" not in name:
            path.write_text(text)

    (said,) = complaints(validator, tmp_path)

    assert 'owned CRD \\"operator.knative.dev/v1beta1, Kind=KnativeServing\\" not found' in said


def test_olm_installs_the_operator_of_the_manifests() -> None:
    """The same Deployment, rights, CRDs and settings; OLM itself makes account and bindings."""
    image = "example/knfleet:v1"
    wanted = everything(OperatorInstall(image=image))
    made = {
        path: content
        for path, text in bundle(image, "https://example.com/org").items()
        if path.startswith("manifests/")
        for content in load_all(text)
    }
    csv = made.pop("manifests/knfleet.clusterserviceversion.yaml")
    strategy = csv["spec"]["install"]["spec"]

    by_kind: dict[str, list[Any]] = {}
    for each in wanted:
        by_kind.setdefault(each["kind"], []).append(each)
    assert strategy["deployments"][0]["spec"] == by_kind["Deployment"][0]["spec"]
    assert strategy["clusterPermissions"][0]["rules"] == [
        rule for role in by_kind["ClusterRole"] for rule in role["rules"]
    ]
    assert strategy["permissions"][0]["rules"] == by_kind["Role"][0]["rules"]
    names = {(each["kind"], each["metadata"]["name"]) for each in made.values()}
    others = {(each["kind"], each["metadata"]["name"]) for each in wanted}
    assert names <= others
    assert {kind for kind, _ in others - names} == {
        "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
        "NetworkPolicy", "Deployment", "CustomResourceDefinition",
    }  # fmt: skip
    assert "clusterprofiles.multicluster.x-k8s.io" not in {name for _, name in names}
    assert {
        each["kind"] for each in json.loads(csv["metadata"]["annotations"]["alm-examples"])
    } == {each["kind"] for each in csv["spec"]["customresourcedefinitions"]["owned"]}
