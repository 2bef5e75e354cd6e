"""What doctor finds wrong with registration over gRPC."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from knfleet.agent.grpc.grpc_config import GrpcConfig
from knfleet.workflows.grpc.grpc_diagnosis import GrpcState, grpc_findings

NOW = datetime(2026, 11, 18, tzinfo=UTC)
CA = b"-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"
OTHER = CA.replace(b"YQ", b"Yg")
WELL = GrpcState(
    enabled=True,
    pods={"cluster-manager-grpc-server-x": "Running"},
    service="LoadBalancer",
    addresses=("10.0.0.1",),
    names=("10.0.0.1", "hub-grpc.example.com"),
    ends=NOW + timedelta(days=20),
    bundle=CA,
    config=GrpcConfig("hub-grpc.example.com:443", CA),
)


def test_nothing_is_said_when_grpc_is_neither_offered_nor_asked_for():
    assert grpc_findings(GrpcState(), "csr", NOW) == []


def test_everything_is_right_when_all_parts_fit():
    found = grpc_findings(WELL, "grpc", NOW)

    assert [each.what for each in found if each.remedy] == []
    assert found[-1].seen == "hub-grpc.example.com:443"


@pytest.mark.parametrize(
    ("state", "what", "words"),
    [
        (GrpcState(), "gRPC driver", "does not offer it"),
        (replace(WELL, problem="no entry of protocol grpc"), "gRPC endpoint", "no entry"),
        (replace(WELL, service=""), "gRPC endpoint", "there is no Service"),
        (replace(WELL, addresses=()), "gRPC endpoint", "no address yet"),
        (replace(WELL, pods={}), "gRPC server", "no pods"),
        (replace(WELL, pods={"x": "Pending"}), "gRPC server", "x Pending"),
        (replace(WELL, ends=None), "gRPC certificate", "is missing"),
        (replace(WELL, ends=NOW), "gRPC certificate", "until"),
        (replace(WELL, bundle=OTHER), "gRPC address", "another CA"),
        (
            replace(WELL, config=GrpcConfig("elsewhere:443", CA)),
            "gRPC address",
            "not in the certificate",
        ),
    ],
)
def test_each_mistake_of_the_troubleshooting_list_is_found(state: GrpcState, what: str, words: str):
    bad = [each for each in grpc_findings(state, "grpc", NOW) if each.remedy]

    assert [each.what for each in bad] == [what]
    assert words in bad[0].seen
