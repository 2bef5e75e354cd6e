"""Hashes of configurations, equal to those of Open Cluster Management."""

from typing import Any

import pytest

from knfleet.hub.addon.spec_hash import go_json, spec_hash


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "x"]}, '{"a":[true,null,"x"],"b":1}'),
        ("<a> & \u2028\u2029", r'"\u003ca\u003e \u0026 \u2028\u2029"'),
        ('é\n\t"\\\x01\x7f', '"é\\n\\t\\"\\\\\\u0001\x7f"'),
        ({"z": {}, "é": [], "Z": ""}, '{"Z":"","z":{},"é":[]}'),
        (0.5, "0.5"),
        (1.0, "1"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (0.00001, "0.00001"),
        (1.25e-5, "0.0000125"),
        (9.5e-6, "0.0000095"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (-0.0, "-0"),
        (2**63 - 1, "9223372036854775807"),
    ],
)
def test_json_is_written_as_go_writes_it(value: Any, text: str):
    assert go_json(value) == text


def test_identity_and_status_do_not_count():
    config = {"spec": {"agentInstallNamespace": "x"}}

    full = {
        **config,
        "apiVersion": "addon.open-cluster-management.io/v1alpha1",
        "kind": "AddOnDeploymentConfig",
        "metadata": {"name": "a", "resourceVersion": "7"},
        "status": {},
    }

    assert spec_hash(full) == spec_hash(config)
    assert spec_hash({"spec": {}}) != spec_hash({"data": {}})


def test_the_hash_of_a_configuration_is_that_of_open_cluster_management():
    """Computed by its add-on framework from the same object."""
    spec = {
        "agentInstallNamespace": "open-cluster-management-agent-addon",
        "customizedVariables": [{"name": "MESSAGE", "value": "<b>&</b>"}],
    }

    assert spec_hash({"spec": spec}) == (
        "eabb0978dd6b3feec969fa7484b745b87eb30710e8bc24b463a7a45b59b06cf5"
    )
