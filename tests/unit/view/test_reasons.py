"""Every reason that we can write has a text that helps, and the page says the same."""

import ast
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

import knfleet
from knfleet.api.cluster.managedcluster import AVAILABLE
from knfleet.api.knative.conditions import READY
from knfleet.apply.change_set import FailureKind
from knfleet.cli.knative.explain import about
from knfleet.cli.main import knfleet as command_line
from knfleet.view.fleet_reader import HubObjects, fleet_of
from knfleet.view.reasons.catalog import REASONS, NoSuchReason, explained, markdown
from knfleet.view.reasons.explanation import Explanation
from tests.support.overview_samples import condition, install, managed, profile

SOURCES = Path(knfleet.__file__).parent
WRITERS = (
    "clusters",
    "agent",
    "hub",
    "workflows",
    "operator",
    "dev/manual_profiles.py",
    "web/pages/actions.py",
)
"""Packages that write conditions and Events."""
CAMEL = re.compile(r"[A-Z][A-Za-z]*[a-z][A-Za-z]*(,[A-Z][A-Za-z]+)*")
OTHER_WORDS = """
True False Unknown
Allow Append AppendIfNotExists Replace Ignore Never IfNotPresent Recreate Background Enable Disable
Default Hosted Singleton SingletonHosted BestEffort ResourceRequirement Opaque
Approved Denied Failed Established Fail Deny Forbidden Running NoSelect Update
ExclusiveClusterSetLabel LabelSelector GaugeMetricFamily Config Normal Warning Info
Binding CertificateSigningRequest Exists ClusterRole ClusterRoleBinding ConfigMap Deployment
CustomResourceDefinition Group Klusterlet Lease ManagedCluster ManagedClusterSetBinding
Namespace Role RoleBinding Secret SelfSubjectAccessReview SelfSubjectReview
SelfSubjectRulesReview ServiceAccount SubjectAccessReview TokenRequest User
ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding KMGTPEkimun
AddOnInformers ConversionReview CreateOnly CurrentCluster Customized DaemonSet
DesiredNumberScheduled Failure Job JobComplete KubeClient NumberReady Placements Pod PodPhase
Degraded ManagedClusterAddOn Orphan
ReadyReplicas Replicas SelectivelyOrphan Succeeded Success WellKnownStatus
AddOn Additive All Balance CandidateCluster ClusterSets DoNotSchedule Equal Exact In Label
NoSelectIfNew Predicate PreferNoSelect Progressive ProgressivePerGroup Rank
ResourceAllocatableCPU ResourceAllocatableMemory Score Scorer Selected Skip Spread Steady Succeeded
TaintToleration TimeOut ToApply
AdmissionReview BadRequest Failure Ignore Invalid List Namespaced None
Accept Apply Object ObjectRef Status String Boolean Integer JsonRaw ConditionRule
APIService DaemonSet Job ManifestWork PersistentVolume PersistentVolumeClaim Pod ReplicaSet Service
MutatingWebhookConfiguration StatefulSet ValidatingWebhookConfiguration
CreateOnly Foreground OnSpokeChange OnSpokePresent Orphan ReadOnly ServerSideApply
CertificateHolder ClusterIP ErrStatus EventChannel Expired GrpcIdentity LoadBalancer
ManifestsDeleted NotFound RelayEnd ResyncRequest RuntimeDefault TokenReview TooManyRequests
Unauthorized WorkSource
WellKnownConditions WellKnownStatus AvailableReplicas DesiredNumberScheduled JobComplete
JobSucceeded ReplicaFailure NumberAvailable NumberReady PodPhase PodReady ReadyReplicas Replicas
MethodNotAllowed RequestEntityTooLarge ServiceUnavailable Timeout Unauthorized
Host ResetCode TunnelClient TunnelFront TunnelRegistry
ControllerRevision KnativeFleet Halt Rollback Wave Enforce Keep LastGood Delete
Done Waiting TimedOut Unreachable Soaking Gated Halted Passed
Broker Handler NoResult NotRequested PodScheduled
"""
"""Words of this form that are no reasons: kinds, statuses, and values of fields."""


def words_of(path: Path) -> Iterator[str]:
    """All texts of a module that look like a reason, those in docstrings aside."""
    tree = ast.parse(path.read_text())
    prose = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if node not in prose and CAMEL.fullmatch(text):
                yield from text.split(",")
            case _:
                pass


def written() -> set[str]:
    """Every reason that our code can write."""
    paths = [
        path
        for package in WRITERS
        for path in (
            [SOURCES / package] if package.endswith(".py") else (SOURCES / package).rglob("*.py")
        )
    ]
    found = {word for path in paths for word in words_of(path)} - set(OTHER_WORDS.split())
    # Taken over from a cluster whose agent gave no reason: the name of the condition's type.
    return found | set(map(str, FailureKind)) | {AVAILABLE}


def test_every_reason_that_we_can_write_is_explained() -> None:
    """A new reason needs a text in `view/reasons/`; a word that is none, a place above."""
    assert written() - set(REASONS) == set()


def test_no_text_explains_what_nobody_writes() -> None:
    assert set(REASONS) - written() == set()


def test_the_page_is_generated() -> None:
    """`make reasons` writes it."""
    page = SOURCES.parent.parent / "docs" / "reasons.md"

    assert page.read_text() == markdown()


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_a_text_says_what_to_do(reason: str) -> None:
    """Whoever must act is told where to look; commands of ours exist as they are written."""
    text = REASONS[reason]

    assert text.written_on
    assert text.meaning.endswith(".")
    assert text.fix.endswith(".")
    for line in commands(text):
        check(line)


def commands(text: Explanation) -> Iterator[str]:
    """The commands of ours that a text names."""
    quoted = re.findall(r"`(knfleet [^`]+)`", f"{text.meaning} {text.fix}")
    typed = [each.command for each in text.find if each.command]
    yield from (part.strip() for line in [*quoted, *typed] for part in line.split("|"))


def check(line: str) -> None:
    """Fail unless a command of ours parses."""
    words = shlex.split(line)
    if words[0] != "knfleet":
        assert words[0] == "kubectl"
        return
    context = click.Context(command_line)
    command: click.Command = command_line
    rest = iter(words[1:])
    while isinstance(command, click.Group):
        found = command.get_command(context, next(rest))
        assert found is not None, f"there is no command {line}"
        command = found
    known = {option for each in command.params for option in each.opts}
    given = {word.partition("=")[0] for word in rest if word.startswith("-")} - {"-"}
    assert given <= known, f"{line}: {given - known} is unknown"


def test_a_reason_is_found_in_whatever_case_and_in_company() -> None:
    """People copy what `kubectl` shows them."""
    both = explained("bootstrapsecretfunctional,HubKubeConfigError")

    assert [name for name, _ in both] == ["BootstrapSecretFunctional", "HubKubeConfigError"]
    with pytest.raises(NoSuchReason, match="did you mean NotReady"):
        explained("NotRedy")


def test_a_custom_resource_is_explained_with_its_own_names() -> None:
    """The commands can be typed in as they stand."""
    said = condition(READY, "False", "ClusterProfileNotReady", "it is not healthy")
    fleet = fleet_of(
        HubObjects(
            clusters=[managed("edge-1", "Unknown")],
            profiles=[profile("edge-1")],
            servings=[install("s", said, on="edge-1")],
        ),
        datetime(2026, 1, 1, tzinfo=UTC),
    )

    head, texts = about(fleet.installs[0])

    assert "KnativeServing knative/s is not ready: ClusterProfileNotReady" in head
    assert [name for name, _ in texts] == ["ClusterProfileNotReady"]
    typed = [each.command for each in texts[0][1].find]
    assert "kubectl get clusterprofile -n fleet edge-1 -o yaml" in typed
    assert "knfleet doctor edge-1" in typed
