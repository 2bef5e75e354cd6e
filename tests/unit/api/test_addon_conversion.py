"""Conversion of add-on objects between v1alpha1 and v1beta1."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knfleet.api.addon.conversion import ConversionError, convert
from knfleet.api.addon.names import (
    CONVERSION,
    GROUP,
    INSTALL_NAMESPACE,
    KUBE_CLIENT_SIGNER,
    NO_DEFAULT,
)
from knfleet.api.meta import Object

ALPHA, BETA = f"{GROUP}/v1alpha1", f"{GROUP}/v1beta1"
TEMPLATES = {"group": GROUP, "resource": "addontemplates"}
CONFIGS = {"group": GROUP, "resource": "addondeploymentconfigs"}


def cma(api_version: str, **parts: Any) -> Object:
    """A ClusterManagementAddOn."""
    meta = {"name": "helloworld"}
    return {
        "apiVersion": api_version,
        "kind": "ClusterManagementAddOn",
        "metadata": meta,
        "spec": {},
        **parts,
    }


def mca(api_version: str, annotations: dict[str, str] | None = None, **parts: Any) -> Object:
    """A ManagedClusterAddOn."""
    meta: Object = {"name": "helloworld", "namespace": "cluster1"}
    if annotations:
        meta["annotations"] = annotations
    return {
        "apiVersion": api_version,
        "kind": "ManagedClusterAddOn",
        "metadata": meta,
        "spec": {},
        **parts,
    }


def test_supported_types_become_default_configurations():
    spec = {
        "addOnMeta": {"displayName": "helloworld"},
        "supportedConfigs": [
            {**CONFIGS, "defaultConfig": {"name": "default", "namespace": "ocm"}},
            TEMPLATES,
        ],
    }
    status: Object = {
        "defaultconfigReferences": [{**CONFIGS, "desiredConfig": {"name": "default"}}]
    }

    beta = convert(cma(ALPHA, spec=spec, status=status), BETA)

    assert beta == cma(
        BETA,
        spec={
            "addOnMeta": {"displayName": "helloworld"},
            "defaultConfigs": [
                {**CONFIGS, "name": "default", "namespace": "ocm"},
                {**TEMPLATES, "name": NO_DEFAULT},
            ],
        },
        status={"defaultConfigReferences": status["defaultconfigReferences"]},
    )
    assert convert(beta, ALPHA) == cma(ALPHA, spec=spec, status=status)


def test_the_install_namespace_becomes_an_annotation():
    alpha = mca(ALPHA, spec={"installNamespace": "helloworld"})

    beta = convert(alpha, BETA)

    assert beta == mca(BETA, {INSTALL_NAMESPACE: "helloworld"})
    assert convert(beta, ALPHA) == alpha


def test_registrations_are_told_apart_by_their_signer():
    alpha = mca(
        ALPHA,
        status={
            "kubeClientDriver": "csr",
            "registrations": [
                {"signerName": KUBE_CLIENT_SIGNER, "subject": {"user": "u", "groups": ["g"]}},
                {
                    "signerName": "example.com/signer",
                    "subject": {"user": "v", "organizationUnit": ["ou"]},
                },
            ],
        },
    )

    beta = convert(alpha, BETA)

    assert beta["status"] == {
        "registrations": [
            {
                "type": "kubeClient",
                "kubeClient": {"subject": {"user": "u", "groups": ["g"]}, "driver": "csr"},
            },
            {
                "type": "customSigner",
                "customSigner": {
                    "signerName": "example.com/signer",
                    "subject": {"user": "v", "organizationUnits": ["ou"]},
                },
            },
        ]
    }
    assert convert(beta, ALPHA) == alpha


def test_the_deprecated_name_of_a_reference_is_that_of_the_desired_configuration():
    desired = {"name": "c", "namespace": "n", "specHash": "h"}
    beta = mca(BETA, status={"configReferences": [{**CONFIGS, "desiredConfig": desired}]})

    alpha = convert(beta, ALPHA)

    assert alpha["status"]["configReferences"] == [
        {**CONFIGS, "desiredConfig": desired, "name": "c", "namespace": "n"}
    ]
    assert convert(alpha, BETA) == beta


def test_a_value_that_the_other_version_lacks_comes_back():
    alpha = cma(ALPHA, spec={"addOnConfiguration": {"crdName": "things.example.com"}})

    beta = convert(alpha, BETA)

    assert beta["spec"] == {}
    assert CONVERSION in beta["metadata"]["annotations"]
    assert convert(beta, ALPHA) == alpha


def test_a_later_change_wins_over_a_kept_value():
    """Names that differ from the desired configuration are kept only while nothing else changes."""
    reference = {**CONFIGS, "name": "old", "desiredConfig": {"name": "c"}}
    beta = convert(mca(ALPHA, status={"configReferences": [reference]}), BETA)
    beta["status"]["configReferences"][0]["desiredConfig"] = {"name": "d"}

    alpha = convert(beta, ALPHA)

    assert [each["name"] for each in alpha["status"]["configReferences"]] == ["d"]
    assert "annotations" not in alpha["metadata"]


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", '{"metadata.uid": "x"}', '{"spec.configs": [{"name": "evil"}]}']
)
def test_an_annotation_cannot_change_what_the_object_says(text: str):
    beta = mca(BETA, {CONVERSION: text}, spec={"configs": [{**CONFIGS, "name": "c"}]})

    assert convert(beta, ALPHA) == mca(ALPHA, spec={"configs": [{**CONFIGS, "name": "c"}]})


@pytest.mark.parametrize(
    ("manifest", "wanted", "words"),
    [
        ({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}, BETA, "Pod p: not an"),
        (cma(f"{GROUP}/v2"), BETA, "no conversion from v2 to v1beta1"),
        (cma(ALPHA), f"{GROUP}/v2", "no conversion from v1alpha1 to v2"),
        (cma(ALPHA), "other.io/v1beta1", "not an add-on object"),
        ({"kind": "ManagedClusterAddOn", "apiVersion": ALPHA}, BETA, "not an add-on object"),
    ],
)
def test_what_cannot_be_converted_is_named(manifest: Object, wanted: str, words: str):
    with pytest.raises(ConversionError, match=words):
        convert(manifest, wanted)


words = st.text("abcxyz", min_size=1, max_size=4)
unknown = st.dictionaries(
    st.text("qw", min_size=1, max_size=3).map(lambda text: f"unknown{text}"),
    st.recursive(
        st.none() | st.booleans() | st.integers() | words,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
        max_leaves=4,
    ),
    max_size=2,
)


def merged(known: Object, others: Object) -> Object:
    """Known and unknown fields together."""
    return {**others, **known}


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    """Objects with some of the fields, and perhaps unknown ones."""
    return st.builds(merged, st.fixed_dictionaries({}, optional=fields), unknown)


referents = some(name=words, namespace=words, specHash=words)
config_type = {"group": words, "resource": words}
groups = st.lists(words, max_size=2)
signers = st.sampled_from([KUBE_CLIENT_SIGNER, "example.com/a", "example.com/b"])
drivers = st.sampled_from(["csr", "token"])
annotations = st.dictionaries(words, words, min_size=1, max_size=2)
metadata = st.fixed_dictionaries({"name": words}, optional={"annotations": annotations})

alpha_addons = st.fixed_dictionaries(
    {
        "apiVersion": st.just(ALPHA),
        "kind": st.just("ManagedClusterAddOn"),
        "metadata": metadata,
        "spec": some(installNamespace=words, configs=st.lists(some(**config_type), max_size=2)),
    },
    optional={
        "status": some(
            namespace=words,
            addOnConfiguration=some(crdName=words),
            kubeClientDriver=drivers,
            configReferences=st.lists(
                some(
                    **config_type,
                    name=words,
                    namespace=words,
                    desiredConfig=referents,
                    lastAppliedConfig=referents,
                ),
                max_size=3,
            ),
            registrations=st.lists(
                some(
                    signerName=signers,
                    subject=some(user=words, groups=groups, organizationUnit=groups),
                ),
                max_size=3,
            ),
        )
    },
)
beta_addons = st.fixed_dictionaries(
    {
        "apiVersion": st.just(BETA),
        "kind": st.just("ManagedClusterAddOn"),
        "metadata": st.fixed_dictionaries(
            {"name": words},
            optional={
                "annotations": st.dictionaries(
                    words | st.just(INSTALL_NAMESPACE), words, min_size=1, max_size=2
                )
            },
        ),
        "spec": some(configs=st.lists(some(**config_type), max_size=2)),
    },
    optional={
        "status": some(
            namespace=words,
            configReferences=st.lists(
                some(**config_type, desiredConfig=referents, lastAppliedConfig=referents),
                max_size=3,
            ),
            registrations=st.lists(
                some(
                    type=st.sampled_from(["kubeClient", "customSigner"]),
                    kubeClient=some(subject=some(user=words, groups=groups), driver=drivers),
                    customSigner=some(
                        signerName=signers,
                        subject=some(user=words, groups=groups, organizationUnits=groups),
                    ),
                ),
                max_size=3,
            ),
        )
    },
)
alpha_cluster_addons = st.fixed_dictionaries(
    {
        "apiVersion": st.just(ALPHA),
        "kind": st.just("ClusterManagementAddOn"),
        "metadata": metadata,
        "spec": some(
            addOnMeta=some(displayName=words),
            addOnConfiguration=some(crdName=words, crName=words),
            supportedConfigs=st.lists(
                some(**config_type, defaultConfig=referents | st.just(Object())), max_size=3
            ),
        ),
    },
    optional={"status": some(defaultconfigReferences=st.lists(some(desiredConfig=referents)))},
)
beta_cluster_addons = st.fixed_dictionaries(
    {
        "apiVersion": st.just(BETA),
        "kind": st.just("ClusterManagementAddOn"),
        "metadata": metadata,
        "spec": some(
            addOnMeta=some(displayName=words),
            defaultConfigs=st.lists(
                some(**config_type, name=words | st.just(NO_DEFAULT), namespace=words), max_size=3
            ),
        ),
    },
    optional={"status": some(defaultConfigReferences=st.lists(some(desiredConfig=referents)))},
)


@settings(deadline=None)
@given(alpha_addons | beta_addons | alpha_cluster_addons | beta_cluster_addons)
def test_nothing_is_lost_by_converting_there_and_back(manifest: Object):
    wanted = BETA if manifest["apiVersion"] == ALPHA else ALPHA

    there = convert(manifest, wanted)

    assert convert(there, manifest["apiVersion"]) == manifest
    assert convert(convert(convert(there, manifest["apiVersion"]), wanted), wanted) == there
