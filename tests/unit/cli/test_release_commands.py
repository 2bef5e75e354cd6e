"""`knfleet bundle`, `render` and `manifests`, as people type them."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from knfleet.cli.main import knfleet
from knfleet.kube.yaml import load_all
from tests.unit.release.tree import tree

SERVING = """
apiVersion: operator.knative.dev/v1beta1
kind: KnativeServing
metadata: {name: one, namespace: somewhere}
spec: {ingress: {kourier: {enabled: true}}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with release files."""
    return tree(tmp_path / "ko")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep away from the user's own folders."""
    monkeypatch.delenv("KO_DATA_PATH", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def run(*arguments: object, stdin: str = "") -> Result:
    """Run the command line."""
    return CliRunner().invoke(knfleet, [str(argument) for argument in arguments], input=stdin)


def test_what_was_pulled_is_listed_verified_and_rendered(root: Path):
    pulled = run("bundle", "pull", "--from", root)
    assert pulled.exit_code == 0, pulled.output
    assert "33 files in" in pulled.stderr

    listed = run("bundle", "list")
    assert listed.output.splitlines()[1].split() == ["knative-serving", "1.23.0", "2"]

    assert run("bundle", "verify").output == "33 files are valid\n"

    rendered = run("render", "-f", "-", stdin=SERVING)
    assert rendered.exit_code == 0, rendered.output
    names = [manifest["metadata"]["name"] for manifest in load_all(rendered.stdout)]
    assert names == ["serving-crds", "serving-core", "net-kourier"]
    places = {manifest["metadata"]["namespace"] for manifest in load_all(rendered.stdout)}
    assert places == {"somewhere"}


def test_a_list_for_programs(root: Path):
    listed = msgspec.json.decode(run("bundle", "list", "--dir", root, "-o", "json").stdout)

    assert listed[0] == {
        "section": "knative-serving",
        "version": "1.23.0",
        "parts": [],
        "files": 2,
    }


def test_another_version_is_rendered_when_asked_for(root: Path):
    rendered = run("render", "-f", "-", "--version", "1.22", "--dir", root, stdin=SERVING)

    labels = load_all(rendered.stdout)[0]["metadata"]["labels"]
    assert labels["app.kubernetes.io/version"] == "1.22.1"


def test_a_changed_file_fails_the_verification(root: Path):
    run("bundle", "pull", "--from", root)
    file = next(root.parent.glob("data/knfleet/bundle/knative-serving/1.23.0/2-*.yaml"))
    file.write_text("# changed\n")

    verified = run("bundle", "verify")

    assert verified.exit_code == 1
    assert "2-core.yaml was changed" in verified.stderr
    assert "Error: 1 problems in" in verified.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["bundle", "list"], "", "get them with `knfleet bundle pull`"),
        (["bundle", "pull", "--from", "/no/such"], "", "there is no such folder"),
        (["render", "-f", "-"], SERVING, "get them with `knfleet bundle pull`"),
        (["render", "-f", "-"], "kind: Pod\napiVersion: v1", "has no KnativeServing"),
        (["render", "-f", "-"], "a: [", "line"),
        (["render", "-f", "-"], SERVING.replace("true", "maybe"), "spec.ingress.kourier.enabled"),
    ],
)
def test_a_failure_is_one_message_and_exit_code_1(arguments: list[str], stdin: str, message: str):
    result = run(*arguments, stdin=stdin)

    assert result.exit_code == 1
    assert "Error: " in result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("version", ["1.9", "v1.23", "nonsense"])
def test_a_version_that_cannot_be_rendered_is_told(root: Path, version: str):
    result = run("render", "-f", "-", "--version", version, "--dir", root, stdin=SERVING)

    assert result.exit_code == 1
    assert version in result.stderr


@pytest.mark.parametrize(
    "arguments", [["manifests", "--for", "all"], ["render"], ["bundle", "list", "-o", "x"]]
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]):
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize("name", ["identity", "issuer"])
@pytest.mark.parametrize("command", ["pull", "verify"])
def test_whom_certificates_are_for_needs_the_key_that_is_pinned(command: str, name: str):
    said = run("bundle", command, f"--{name}", "me@example.com")

    assert said.exit_code == 2
    assert f"--{name} is compared with certificates of an authority; add --key" in said.stderr


def test_crds_are_printed_for_kubectl():
    printed = load_all(run("manifests", "--crds").stdout)
    listed = msgspec.json.decode(run("manifests", "--crds", "-o", "json").stdout)

    assert printed == listed["items"]
    assert plurals("--for", "operator") == [
        "knativeservings",
        "knativeeventings",
        "clusterprofiles",
    ]
    assert plurals("--for", "hub")[3:] == [
        "managedclusters",
        "managedclustersets",
        "managedclustersetbindings",
        "placements",
        "placementdecisions",
        "addonplacementscores",
        "placementdecisions",
        "manifestworks",
        "manifestworkreplicasets",
        "clustermanagementaddons",
        "managedclusteraddons",
        "addondeploymentconfigs",
        "addontemplates",
        "knativefleets",
        "clustermanagers",
    ]
    assert plurals("--for", "spoke") == ["clusterclaims", "appliedmanifestworks", "klusterlets"]
    assert plurals() == [*plurals("--for", "hub"), *plurals("--for", "spoke")]


def plurals(*arguments: str) -> list[str]:
    """The kinds whose CRDs are printed."""
    printed = load_all(run("manifests", "--crds", *arguments).stdout)
    return [crd["spec"]["names"]["plural"] for crd in printed]
