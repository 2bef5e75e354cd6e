"""What `knfleet manifests` prints: enough to install, with no more rights than that takes."""

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from knfleet.api.meta import Object
from knfleet.cli.main import knfleet
from knfleet.install.operator_manifests import everything
from knfleet.install.operator_options import InstallError, OperatorInstall, PluginImage, check
from knfleet.kube.yaml import load_all
from knfleet.operator.rights import INSTALLED, hub_rules, namespace_rules
from knfleet.release.source.sources import GoModuleSource

SECRETREADER = {"name": "secretreader", "execConfig": {"command": "/plugins/x/secretreader-plugin"}}


FIELD = r"(?m)^{}: *[\"']?([\w./-]+)"
"""Parsing all releases would take longer than all other tests together."""


def objects(install: OperatorInstall) -> dict[str, Object]:
    """What is installed, by kind and name."""
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in everything(install)}


def container(install: OperatorInstall) -> Object:
    """The operator's container."""
    pod = objects(install)["Deployment/knative-operator"]["spec"]["template"]["spec"]
    return pod["containers"][0]


def test_the_deployment_is_found_by_the_knative_operators_names() -> None:
    """People patch it by these, and the selector cannot change in an upgrade."""
    deployment = objects(OperatorInstall())["Deployment/knative-operator"]

    assert deployment["metadata"]["namespace"] == "knative-operator"
    assert deployment["spec"]["selector"] == {"matchLabels": {"name": "knative-operator"}}
    assert container(OperatorInstall())["name"] == "knative-operator"


def test_flags_that_are_typed_into_the_deployment_do_not_replace_the_command() -> None:
    """The documents replace `args`, or add to them; both must leave `knfleet operator`."""
    found = container(OperatorInstall())

    assert found["command"] == ["knfleet", "operator"]
    assert found["args"] == ["--remote-deployments-poll-interval=10s"]


def test_the_pod_can_do_little_on_its_node() -> None:
    """It passes the restricted pod security standard."""
    pod = objects(OperatorInstall())["Deployment/knative-operator"]["spec"]["template"]["spec"]

    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(OperatorInstall())["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_hub_that_installs_nothing_on_itself_has_narrow_rights() -> None:
    """No Secrets but its own, no Roles, no workloads."""
    found = objects(OperatorInstall(local=False))

    rules = found["ClusterRole/knative-operator"]["rules"]
    assert "ClusterRole/knative-operator-local" not in found
    assert rules == hub_rules()
    assert {each for rule in rules for each in rule["resources"]}.isdisjoint(
        {"secrets", "configmaps", "deployments", "roles", "clusterroles", "*"}
    )
    assert found["Role/knative-operator"]["rules"] == namespace_rules()


def test_no_rule_says_all() -> None:
    """What is allowed is named."""
    roles = [
        each for each in everything(OperatorInstall(secret_namespaces=("x",))) if "rules" in each
    ]

    assert len(roles) == 4
    assert not [each for each in roles if "*" in str(each["rules"])]


def test_every_kind_of_every_release_may_be_installed() -> None:
    """A release with a new kind must not be found out on a cluster."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that the releases cannot be fetched")
    root = asyncio.run(GoModuleSource().fetch())
    found: set[tuple[str, str]] = set()
    for file in Path(root).rglob("*.yaml"):
        for document in re.split("(?m)^---", file.read_text()):
            api, kind = (FIELD.format(name) for name in ("apiVersion", "kind"))
            if (group := re.search(api, document)) and (named := re.search(kind, document)):
                found.add((group[1].rpartition("/")[0], named[1]))

    plurals = {(group, each) for group, kinds in INSTALLED.items() for each in kinds}

    assert len(found) > 15
    assert {(group, plural(kind)) for group, kind in found} <= plurals


def plural(kind: str) -> str:
    """The plural of a kind in releases."""
    return f"{kind.lower()}s"


def test_providers_and_plugins_become_a_file_and_volumes(tmp_path: Path) -> None:
    """As the options of the command say."""
    file = tmp_path / "providers.json"
    file.write_text(json.dumps({"providers": [SECRETREADER]}))

    answer = CliRunner().invoke(
        knfleet,
        ["manifests", "-n", "hub", "--image", "example/knfleet:1", "--multicluster",
         "--provider-file", str(file), "--plugin", "sr", "example/secretreader:2", "/plugins/x/",
         "--secret-namespace", "fleet-system"],
    )  # fmt: skip

    assert answer.exit_code == 0, answer.output
    found = {f"{each['kind']}/{each['metadata']['name']}": each for each in load_all(answer.stdout)}
    data = found["ConfigMap/clusterprofile-provider-file"]["data"]
    assert json.loads(data["config.json"]) == {"providers": [SECRETREADER]}
    pod = found["Deployment/knative-operator"]["spec"]["template"]["spec"]
    assert {"name": "sr", "image": {"reference": "example/secretreader:2"}} in pod["volumes"]
    assert pod["containers"][0]["image"] == "example/knfleet:1"
    assert (
        "--clusterprofile-provider-file=/etc/cluster-inventory/config.json"
        in (pod["containers"][0]["args"])
    )
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert mounts["sr"] == "/plugins/x"
    assert found["RoleBinding/knative-operator-credentials"]["subjects"][0]["namespace"] == "hub"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--multicluster"], "--multicluster needs --provider-file"),
        (["--provider-file", __file__], "give both"),
        (["--for", "all"], "add --crds"),
        (["--for", "spoke"], "--for spoke and --cluster-name NAME go together"),
        (["--cluster-name", "c1"], "--for spoke and --cluster-name NAME go together"),
        (["--for", "spoke", "--cluster-name", "C1"], "a-z, 0-9 and -"),
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(arguments: list[str], words: str) -> None:
    """Exit code 2."""
    answer = CliRunner().invoke(knfleet, ["manifests", *arguments])

    assert answer.exit_code == 2
    assert words in answer.output


def with_command(command: str, **fields: Any) -> OperatorInstall:
    """An installation with one provider."""
    provider = {"name": "p", "execConfig": {"command": command}}
    return OperatorInstall(
        multicluster=True, providers=json.dumps({"providers": [provider]}).encode(), **fields
    )


PLUGIN = PluginImage("x", "example/x:1", "/plugins")


@pytest.mark.parametrize(
    ("install", "words"),
    [
        (OperatorInstall(multicluster=True), "there are no access providers"),
        (OperatorInstall(multicluster=True, providers=b"{"), "the provider file cannot be used"),
        (OperatorInstall(multicluster=True, providers=b"{}"), "missing required field `providers`"),
        (with_command("/elsewhere/x", plugins=(PLUGIN,)), "is not under any plugins"),
        (with_command("/plugins", plugins=(PLUGIN,)), "is not under any plugins"),
        (with_command("/plugins/../x", plugins=(PLUGIN,)), 'command "/x" is not under any'),
        (with_command("/pluginsx/y", plugins=(PLUGIN,)), "is not under any plugins"),
        (
            with_command("x", plugins=(PluginImage("x", "y", "plugins"),)),
            "must be an absolute path",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(install: OperatorInstall, words: str) -> None:
    """Before it is a pod that does not start."""
    with pytest.raises(InstallError, match=words):
        check(install)


@pytest.mark.parametrize("command", ["secretreader-plugin", "/plugins/bin/x", "/plugins//x"])
def test_plugins_of_our_own_and_below_a_mount_are_fine(command: str) -> None:
    """Our own are in the image."""
    check(with_command(command, plugins=(PLUGIN,)))
