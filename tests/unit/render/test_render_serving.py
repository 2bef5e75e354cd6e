"""Certificates and the security guard."""

import pytest

from knfleet.api.meta import Object
from knfleet.render.errors import RenderError
from tests.unit.render.samples import config_map, container, env, one, pod, workload


def certs(type_: str, name: str) -> Object:
    return {"controller-custom-certs": {"type": type_, "name": name}}


@pytest.mark.parametrize(
    ("type_", "source"),
    [("ConfigMap", {"configMap": {"name": "c"}}), ("Secret", {"secret": {"secretName": "c"}})],
)
def test_the_controller_trusts_custom_certificates(type_: str, source: Object):
    """Mounted into its first container alone."""
    manifest = workload("controller", container("controller"), container("sidecar"))

    result = one(manifest, certs(type_, "c"))

    first, second = pod(result)["containers"]
    assert [{"name": "custom-certs-c", **source}] == pod(result)["volumes"]
    assert first["volumeMounts"] == [{"name": "custom-certs-c", "mountPath": "/custom-certs"}]
    assert env(result) == [{"name": "SSL_CERT_DIR", "value": "/custom-certs"}]
    assert "volumeMounts" not in second
    assert "volumes" not in pod(one(workload("webhook"), certs(type_, "c")))


def test_certificates_replace_what_a_workload_override_has_set():
    """Two variables of one name would be refused."""
    override = {
        "name": "controller",
        "env": [
            {"container": "controller", "envVars": [{"name": "SSL_CERT_DIR", "value": "/etc"}]}
        ],
    }

    result = one(workload("controller"), {**certs("Secret", "c"), "workloads": [override]})

    assert env(result) == [{"name": "SSL_CERT_DIR", "value": "/custom-certs"}]


@pytest.mark.parametrize(
    ("type_", "name", "problem"),
    [
        ("Volume", "c", "unknown CustomCerts type: Volume"),
        ("", "c", "unknown CustomCerts type: "),
        ("Secret", "", "the CustomCerts name for Secret is required"),
    ],
)
def test_certificates_that_cannot_be_found_are_refused(type_: str, name: str, problem: str):
    """With upstream's words."""
    with pytest.raises(RenderError) as caught:
        one(workload("controller"), certs(type_, name))

    assert problem == caught.value.problem


@pytest.mark.parametrize("spec", [{}, certs("", "")])
def test_without_certificates_nothing_is_mounted(spec: Object):
    """An empty field is none."""
    assert "volumes" not in pod(one(workload("controller"), spec))


@pytest.mark.parametrize(
    ("security", "expected"),
    [
        (
            {"security": {"securityGuard": {"enabled": True}}},
            {"queueproxy.mount-podinfo": "allowed"},
        ),
        ({"security": {"securityGuard": {"enabled": False}}}, {}),
        ({}, {}),
    ],
)
def test_the_guard_may_mount_pod_info(security: Object, expected: Object):
    """Only while it is on."""
    assert expected == one(config_map("config-features"), security)["data"]
    assert one(config_map("config-other"), security)["data"] == {}
