"""What is wrong with a cluster, from everything that can be seen of it. Pure.

Each finding is a line that stands for itself: what was looked at, what was seen, and what to do.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct

from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    AVAILABLE,
    CERTIFICATE_ROTATED,
    CLOCK_SYNCED,
    JOINED,
    ManagedCluster,
)
from knfleet.api.conditions import StandardCondition, find
from knfleet.api.operator import HUB_CONNECTION_DEGRADED, Klusterlet
from knfleet.workflows.cluster_reach import ClusterReach
from knfleet.workflows.grpc.grpc_diagnosis import GrpcState, grpc_findings

Grade = Literal["ok", "bad", "unknown"]


class DiagnosisInput(Struct, frozen=True):
    """What was seen on the hub, and on the spoke if that could be looked at."""

    name: str
    cluster: ManagedCluster | None = None
    pending: int = 0
    """Certificate requests that wait for a person."""
    renewed: datetime | None = None
    """When the Lease was last renewed."""
    hands_over: bool = False
    """Whether the hub holds a token for the cluster."""
    unreached: str = ""
    """Why the cluster was not reached with that token from here."""
    tunnel: ClusterReach | None = None
    """How the tunnel stands, if the cluster is reached through it."""
    spoke: bool = False
    """Whether the spoke could be looked at."""
    klusterlet: Klusterlet | None = None
    pods: Mapping[str, str] = {}
    """The agent's pods, and what each is."""
    log: str = ""
    """The last error in the agent's log."""
    certificate_ends: datetime | None = None
    grpc: GrpcState = GrpcState()
    """Registration over gRPC."""


class DiagnosisFinding(Struct, frozen=True):
    """One thing that was looked at."""

    what: str
    grade: Grade
    seen: str
    remedy: str = ""

    def line(self) -> str:
        """The finding for people."""
        mark = {"ok": "ok  ", "bad": "BAD ", "unknown": "?   "}[self.grade]
        remedy = f"\n     → {self.remedy}" if self.remedy else ""
        return f"{mark} {self.what}: {self.seen}{remedy}"


def by_grpc(seen: DiagnosisInput, now: datetime) -> list[DiagnosisFinding]:
    """What there is to say about registration over gRPC."""
    registration = seen.klusterlet and seen.klusterlet.spec.registration_configuration
    auth_type = registration.registration_driver.auth_type if registration else ""
    return [
        DiagnosisFinding(each.what, "bad" if each.remedy else "ok", each.seen, each.remedy)
        for each in grpc_findings(seen.grpc, auth_type, now)
    ]


def diagnose(seen: DiagnosisInput, now: datetime) -> list[DiagnosisFinding]:
    """Everything that there is to say about a cluster, in the order of its life."""
    if seen.cluster is None:
        return [
            DiagnosisFinding(
                "ManagedCluster",
                "bad",
                f"there is none called {seen.name}",
                "run on the cluster what `knfleet get token` prints",
            ),
            *by_grpc(seen, now),
            *spoke_findings(seen, now),
        ]
    return [
        accepted(seen, seen.cluster),
        joined(seen.cluster),
        lease(seen, seen.cluster, now),
        clock(seen.cluster),
        available(seen.cluster),
        certificate(seen.cluster),
        access(seen),
        *by_grpc(seen, now),
        *spoke_findings(seen, now),
    ]


def accepted(seen: DiagnosisInput, cluster: ManagedCluster) -> DiagnosisFinding:
    """Whether the hub took the cluster in."""
    condition = find(cluster.status.conditions, ACCEPTED)
    if condition is not None and condition.status == "True":
        return DiagnosisFinding("accepted", "ok", "the hub has accepted the cluster")
    if not cluster.spec.hub_accepts_client:
        waiting = f"{seen.pending} certificate requests wait" if seen.pending else "not accepted"
        return DiagnosisFinding(
            "accepted", "bad", waiting, f"knfleet accept --clusters {seen.name}"
        )
    why = condition.message if condition else "the hub's controllers have not reconciled it"
    remedy = "see the pods of namespace open-cluster-management on the hub"
    return DiagnosisFinding("accepted", "bad", why, remedy)


def joined(cluster: ManagedCluster) -> DiagnosisFinding:
    """Whether the agent got in."""
    condition = find(cluster.status.conditions, JOINED)
    if condition is not None and condition.status == "True":
        return DiagnosisFinding("joined", "ok", f"since {condition.last_transition_time}")
    remedy = "see the findings about the agent below, or run doctor with --spoke-context"
    return DiagnosisFinding("joined", "bad", "the agent never logged in with a certificate", remedy)


def lease(seen: DiagnosisInput, cluster: ManagedCluster, now: datetime) -> DiagnosisFinding:
    """Whether the agent renews its Lease."""
    if seen.renewed is None:
        return DiagnosisFinding(
            "heartbeat", "bad", "there is no Lease", "the hub makes it on acceptance"
        )
    age = (now - seen.renewed).total_seconds()
    text = f"the Lease was renewed {age:.0f} s ago, every {cluster.lease_seconds} s is due"
    if age > cluster.grace_seconds:
        remedy = "the agent is stopped, or does not reach the hub: check its pod and its log"
        return DiagnosisFinding("heartbeat", "bad", text, remedy)
    return DiagnosisFinding("heartbeat", "ok", text)


def clock(cluster: ManagedCluster) -> DiagnosisFinding:
    """Whether the hub trusts the cluster's clock."""
    condition = find(cluster.status.conditions, CLOCK_SYNCED)
    if condition is not None and condition.status == "False":
        remedy = "synchronise both clocks, for instance by NTP; nothing is reported meanwhile"
        return DiagnosisFinding("clock", "bad", condition.message, remedy)
    return DiagnosisFinding("clock", "ok", "in step with the hub's")


def available(cluster: ManagedCluster) -> DiagnosisFinding:
    """Whether the cluster says that it is well."""
    condition = find(cluster.status.conditions, AVAILABLE)
    return graded("available", condition, "check the cluster's API server, then the agent")


def certificate(cluster: ManagedCluster) -> DiagnosisFinding:
    """Whether the agent's certificate is renewed."""
    condition = find(cluster.status.conditions, CERTIFICATE_ROTATED)
    return graded(
        "certificate", condition, "delete old certificate requests of the cluster on the hub"
    )


def graded(what: str, condition: StandardCondition | None, remedy: str) -> DiagnosisFinding:
    if condition is None:
        return DiagnosisFinding(what, "unknown", "no condition")
    if condition.status == "True":
        return DiagnosisFinding(what, "ok", condition.message)
    return DiagnosisFinding(what, "bad", f"{condition.reason}: {condition.message}", remedy)


def access(seen: DiagnosisInput) -> DiagnosisFinding:
    """Whether the hub holds a token for the cluster."""
    if seen.tunnel is not None:
        return tunnel(seen.tunnel)
    if seen.unreached:
        remedy = "is it an address that the hub can reach? join with --external-server-url"
        return DiagnosisFinding("access", "bad", f"not reached from here: {seen.unreached}", remedy)
    if seen.hands_over:
        return DiagnosisFinding(
            "access", "ok", "the cluster answers to the token that the hub holds"
        )
    remedy = "only `knfleet agent` hands one over; for others put one into the profile's Secret"
    return DiagnosisFinding("access", "unknown", "the hub holds no token for the cluster", remedy)


def tunnel(reached: ClusterReach) -> DiagnosisFinding:
    """Whether the hub gets to the cluster through its agent's tunnel."""
    if reached.since is None:
        remedy = "the agent's log says why it does not connect; see `knfleet proxy health`"
        return DiagnosisFinding("access", "bad", reached.problem, remedy)
    trip = reached.round_trip_milliseconds
    measured = "" if trip is None else f", round trip {trip} ms"
    since = f"{reached.since:%Y-%m-%d %H:%M:%S} UTC"
    text = f"through the tunnel, which is open since {since}{measured}"
    return DiagnosisFinding("access", "ok", text)


def spoke_findings(seen: DiagnosisInput, now: datetime) -> list[DiagnosisFinding]:
    """What the spoke itself shows."""
    if not seen.spoke:
        remedy = "name it: --spoke-context CONTEXT, or --spoke-kubeconfig FILE"
        return [DiagnosisFinding("spoke", "unknown", "not checked", remedy)]
    findings = [klusterlet(seen), pods(seen)]
    if seen.certificate_ends is not None:
        over = seen.certificate_ends <= now
        text = f"it ends {seen.certificate_ends:%Y-%m-%d %H:%M:%S} UTC"
        remedy = "join again with a new token" if over else ""
        findings.append(
            DiagnosisFinding("agent's certificate", "bad" if over else "ok", text, remedy)
        )
    if seen.log:
        findings.append(DiagnosisFinding("agent's log", "unknown", seen.log))
    return findings


def klusterlet(seen: DiagnosisInput) -> DiagnosisFinding:
    """What the agent says about its way to the hub."""
    if seen.klusterlet is None:
        return DiagnosisFinding(
            "Klusterlet", "bad", "there is none", "run `knfleet join` on the cluster"
        )
    condition = find(seen.klusterlet.status.conditions, HUB_CONNECTION_DEGRADED)
    if condition is None:
        return DiagnosisFinding("Klusterlet", "unknown", "the agent has not reported yet")
    is_ok = condition.status == "False"
    return DiagnosisFinding(
        "Klusterlet", "ok" if is_ok else "bad", f"{condition.reason}: {condition.message}"
    )


def pods(seen: DiagnosisInput) -> DiagnosisFinding:
    """How the agent's pods are."""
    if not seen.pods:
        remedy = "check image pulls and resources: kubectl -n … describe deployment"
        return DiagnosisFinding("agent", "bad", "it has no pods", remedy)
    text = ", ".join(f"{name} {state}" for name, state in sorted(seen.pods.items()))
    is_ok = all(state == "Running" for state in seen.pods.values())
    remedy = "" if is_ok else "kubectl describe the pod, and see its log"
    return DiagnosisFinding("agent", "ok" if is_ok else "bad", text, remedy)
