"""Templates of replica sets: progress rules, variables, names."""

from typing import Any

import pytest

from knfleet.agent.work.observed.condition_rules import environment
from knfleet.api.meta import Key, Object
from knfleet.api.work.replicaset import PLACEMENT_NAME_LABEL, REPLICA_SET, REPLICA_SET_LABEL
from knfleet.hub.work.replicasets.replica_template import (
    PROGRESS_RULES,
    ClusterVariables,
    MissingVariable,
    Template,
    WorkOrder,
    label_value,
    owner_of,
    work_name,
)

CEL = environment()
"""As agents evaluate rules."""
EU = ClusterVariables("c1", {"region": "eu", "example.com/tier": "gold"}, {"id.k8s.io": "x1"})


def config_map(**data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "web", "namespace": "default"},
        "data": data,
    }


def deployment(**spec: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "apps"},
        "spec": spec,
    }


def template(*manifests: Object, has_variables: bool = False, **spec: Any) -> Template:
    return Template(
        {"workload": {"manifests": list(manifests)}, **spec}, has_variables=has_variables
    )


class TestProgressRules:
    def test_known_kinds_get_a_rule(self):
        made = template(deployment(), config_map())

        (config,) = made.spec["manifestConfigs"]
        assert config["resourceIdentifier"] == {
            "group": "apps",
            "resource": "deployments",
            "name": "web",
            "namespace": "apps",
        }
        assert [each["condition"] for each in config["conditionRules"]] == [
            "Progressing",
            "Degraded",
        ]
        assert made.has_progress_rule

    def test_other_kinds_need_none(self):
        made = template(config_map())

        assert "manifestConfigs" not in made.spec
        assert not made.has_progress_rule

    def test_rules_of_the_template_are_left_alone(self):
        rule = {"condition": "Progressing", "type": "CEL", "celExpressions": ["false"]}
        identifier = {"resource": "deployments", "name": "*", "namespace": "*"}
        own = [{"resourceIdentifier": identifier, "conditionRules": [rule]}]

        made = template(deployment(), manifestConfigs=own)

        assert made.spec["manifestConfigs"] == own
        assert made.has_progress_rule

    def test_other_configuration_of_the_template_comes_last(self):
        identifier = {"resource": "deployments", "name": "web", "namespace": "apps"}
        own = {"resourceIdentifier": identifier, "updateStrategy": {"type": "CreateOnly"}}

        made = template(deployment(), manifestConfigs=[own])

        assert made.spec["manifestConfigs"][-1] == own

    @pytest.mark.parametrize(
        ("kind", "object_", "progressing"),
        [
            ("Deployment", {}, True),
            ("Deployment", {"status": {}}, True),
            (
                "Deployment",
                {
                    "status": {
                        "observedGeneration": 2,
                        "replicas": 3,
                        "updatedReplicas": 3,
                        "availableReplicas": 3,
                    }
                },
                False,
            ),
            (
                "Deployment",
                {
                    "status": {
                        "observedGeneration": 1,
                        "replicas": 3,
                        "updatedReplicas": 3,
                        "availableReplicas": 3,
                    }
                },
                True,
            ),
            (
                "Deployment",
                {
                    "status": {
                        "observedGeneration": 2,
                        "replicas": 4,
                        "updatedReplicas": 3,
                        "availableReplicas": 4,
                    }
                },
                True,
            ),
            (
                "StatefulSet",
                {"status": {"observedGeneration": 2, "updatedReplicas": 3, "readyReplicas": 3}},
                False,
            ),
            (
                "DaemonSet",
                {
                    "status": {
                        "observedGeneration": 2,
                        "desiredNumberScheduled": 2,
                        "updatedNumberScheduled": 2,
                        "numberAvailable": 1,
                    }
                },
                True,
            ),
            ("Job", {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, False),
            ("Job", {"status": {}}, True),
        ],
    )
    def test_rules_say_whether_an_object_is_done(
        self, kind: str, object_: Object, progressing: bool
    ):
        (rule,) = [rule for (_, name), rule in PROGRESS_RULES.items() if name == kind]
        live: Object = {"metadata": {"generation": 2}, "spec": {"replicas": 3}, **object_}

        values = CEL.values({"object": live, "result": True})

        assert CEL.condition(rule.progressing).is_true(values) is progressing

    def test_a_deployment_that_makes_no_progress_is_degraded(self):
        rule = PROGRESS_RULES["apps/v1", "Deployment"]
        stuck = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
        live: Object = {"metadata": {}, "spec": {}, "status": {"conditions": [stuck]}}

        program = CEL.condition(rule.degraded)

        assert program.is_true(CEL.values({"object": live, "result": True}))
        live = {**live, "status": {}}
        assert not program.is_true(CEL.values({"object": live, "result": True}))


class TestVariables:
    TEXT = config_map(
        name="{{cluster.name}}",
        region="in {{ cluster.labels.region }}!",
        tier="{{cluster.labels.example.com/tier}}",
        id="{{cluster.claims.id.k8s.io}}",
        other="{{something.else}} {{cluster.version}}",
    )

    def test_they_are_replaced_if_that_is_asked_for(self):
        made = template(self.TEXT, has_variables=True)

        data = made.spec_for(EU)["workload"]["manifests"][0]["data"]

        assert data == {
            "name": "c1",
            "region": "in eu!",
            "tier": "gold",
            "id": "x1",
            "other": "{{something.else}} {{cluster.version}}",
        }

    def test_they_are_left_alone_otherwise(self):
        made = template(self.TEXT)

        assert made.spec_for(EU) is made.spec

    def test_what_a_value_contains_is_not_looked_at_again(self):
        sly = ClusterVariables("c1", {"region": "{{cluster.name}}"}, {})
        made = template(config_map(a="{{cluster.labels.region}}"), has_variables=True)

        data = made.spec_for(sly)["workload"]["manifests"][0]["data"]

        assert data == {"a": "{{cluster.name}}"}

    def test_a_value_that_is_missing_is_named(self):
        made = template(config_map(a="{{cluster.labels.zone}}"), has_variables=True)

        with pytest.raises(MissingVariable, match="cluster c1 has no label zone"):
            made.hash_for(EU)
        with pytest.raises(MissingVariable, match="cluster c1 has no label zone"):
            made.spec_for(EU)

    def test_the_hash_follows_the_template_and_the_values_that_it_uses(self):
        made = template(config_map(a="{{cluster.labels.region}}"), has_variables=True)
        us = ClusterVariables("c1", {**EU.labels, "region": "us"}, EU.claims)
        older = ClusterVariables("c9", {**EU.labels, "other": "x"}, {})

        assert made.hash_for(EU) != made.hash_for(us)
        assert made.hash_for(EU) == made.hash_for(older)
        assert template(config_map(a="b")).hash_for(EU) == template(config_map(a="b")).hash_for(us)
        assert template(config_map(a="b")).hash_for(EU) != template(config_map(a="c")).hash_for(EU)


class TestNames:
    def test_works_of_replica_sets_with_one_name_differ(self):
        assert work_name(Key("a", "web")).startswith("web-")
        assert work_name(Key("a", "web")) != work_name(Key("b", "web"))
        assert len(work_name(Key("a", "w" * 253))) <= 186

    def test_long_names_fit_into_the_label(self):
        assert label_value(Key("apps", "web")) == "apps.web"
        first, second = (label_value(Key("n" * 40, f"{'w' * 40}{each}")) for each in "ab")
        assert len(first) <= 63
        assert first != second

    def test_a_work_names_its_replica_set(self):
        owner = Key("n" * 40, "w" * 40)
        order = WorkOrder(owner, {"team": "a"}, "p" * 80, "c1", "web-12345", "h", "now", {})
        made = order.manifest()

        assert owner_of(made) == [str(owner)]
        assert made["metadata"]["namespace"] == "c1"
        assert made["metadata"]["labels"]["team"] == "a"
        assert len(made["metadata"]["labels"][PLACEMENT_NAME_LABEL]) == 63
        assert made["metadata"]["annotations"][REPLICA_SET] == str(owner)

    def test_so_does_one_that_open_cluster_management_made(self):
        labels = {REPLICA_SET_LABEL: "apps.web.v1"}

        assert owner_of({"metadata": {"labels": labels}}) == ["apps/web.v1"]
        assert owner_of({"metadata": {}}) == []
