"""Feedback and conditions of works, by watch, on a real API server."""

from typing import Any

from knfleet.agent.work.observed.feedback import FeedbackOptions
from knfleet.agent.work.work_settings import WorkSettings
from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.manifestwork import WORKS
from tests.support.works import CLUSTER, WorkBench, conditions, config, config_map, feedback, work

JOBS = Resource("batch", "v1", "Job", "jobs")


def paths(**named: str) -> list[Object]:
    """A feedback rule."""
    listed = [{"name": name, "path": path} for name, path in named.items()]
    return [{"type": "JSONPaths", "jsonPaths": listed}]


def watching(name: str, **options: Any) -> list[Object]:
    """The options for a ConfigMap."""
    return [config("configmaps", name, **options)]


async def test_values_follow_the_object_and_the_rules(bench: WorkBench):
    async with bench.agent():
        rules = paths(a=".data.a", none=".data.none")
        await bench.create(
            work("values", config_map("values", a="1"), manifestConfigs=watching("values"))
        )
        found = await bench.until_condition("values", "Available", "True")
        assert conditions(found, 0)["StatusFeedbackSynced"]["reason"] == "NoStatusFeedbackSynced"

        await bench.change("values", manifestConfigs=watching("values", feedbackRules=rules))
        found = await bench.until_values("values", {"a": "1"})
        assert conditions(found, 0)["StatusFeedbackSynced"]["reason"] == "StatusFeedbackSynced"

        await bench.change("values", workload={"manifests": [config_map("values", a="2")]})
        await bench.until_values("values", {"a": "2"})
        wild = [
            {
                "resourceIdentifier": {
                    "group": "",
                    "resource": "configmaps",
                    "namespace": "def*",
                    "name": "*",
                },
                "feedbackRules": paths(b=".data.a"),
            }
        ]
        more = [*watching("values", feedbackRules=rules), *wild]
        await bench.change("values", manifestConfigs=more)
        await bench.until_values("values", {"a": "2", "b": "2"})
        await bench.delete("values")


async def test_rules_of_no_use_are_reported_beside_good_values(bench: WorkBench):
    rules = [
        *paths(good=".data.a", bad=".data[", object=".metadata.labels"),
        {"type": "WellKnownStatus"},
    ]
    async with bench.agent():
        await bench.create(
            work(
                "useless",
                config_map("useless", a="1"),
                manifestConfigs=watching("useless", feedbackRules=rules),
            )
        )
        found = await bench.until_values("useless", {"good": "1"})
        condition = conditions(found, 0)["StatusFeedbackSynced"]
        assert (condition["status"], condition["reason"]) == ("False", "StatusFeedbackSyncFailed")
        for text in ("bad: ", "RawFeedbackJsonString", "no well-known status values"):
            assert text in condition["message"]
        assert conditions(found)["Applied"]["status"] == "True"
        await bench.delete("useless")
    settings = WorkSettings(feedback=FeedbackOptions(raw_json=True, raw_length=60))
    async with bench.agent(settings):
        await bench.create(
            work(
                "raw",
                config_map("raw", a="1"),
                manifestConfigs=watching(
                    "raw", feedbackRules=paths(data=".data", meta=".metadata")
                ),
            )
        )
        found = await bench.until_values("raw", {"data": '{"a":"1"}'})
        message = conditions(found, 0)["StatusFeedbackSynced"]["message"]
        assert "more than 60 characters" in message
        await bench.delete("raw")


def cel(condition: str, *expressions: str, **more: str) -> Object:
    """A rule in CEL."""
    return {"type": "CEL", "condition": condition, "celExpressions": list(expressions), **more}


async def test_conditions_by_rules_are_aggregated(bench: WorkBench):
    rules = [
        cel("Progressing", "object.data.phase == 'begun'"),
        cel("Filled", "has(object.data.a)", messageExpression="result ? 'filled' : 'empty'"),
        cel("Broken", "object.data."),
        cel("Odd", "'text'"),
        cel("Lost", "object.absent.deeper"),
        {"type": "WellKnownConditions", "condition": "Complete"},
    ]
    identifier = {"group": "", "resource": "configmaps", "namespace": "default", "name": "rule-*"}
    every = [{"resourceIdentifier": identifier, "conditionRules": rules}]
    async with bench.agent():
        manifests = [
            config_map("rule-1", phase="begun", a="1"),
            config_map("rule-2", phase="done"),
        ]
        await bench.create(work("rules", *manifests, manifestConfigs=every))
        found = await bench.until_condition("rules", "Progressing", "True")

        summary = {type_: each["status"] for type_, each in conditions(found).items()}
        assert summary == {
            "Applied": "True",
            "Available": "True",
            "Progressing": "True",
            "Filled": "False",
            "Broken": "False",
            "Odd": "False",
            "Lost": "False",
            "Complete": "Unknown",
        }
        assert conditions(found)["Filled"]["reason"] == "ConditionRulesAggregated"
        own = conditions(found, 0)
        assert own["Filled"]["message"] == "filled"
        assert own["Filled"]["reason"] == "ConditionRuleEvaluated"
        assert own["Broken"]["reason"] == "ConditionRuleExpressionError"
        assert own["Odd"]["reason"] == "ConditionRuleExpressionError"
        assert own["Complete"]["reason"] == "ConditionRuleInvalid"

        less = [{"resourceIdentifier": identifier, "conditionRules": rules[1:2]}]
        await bench.change("rules", manifestConfigs=less)
        found = await bench.until_condition("rules", "Filled", "False")
        assert set(conditions(found)) == {"Applied", "Available", "Filled"}
        await bench.delete("rules")


async def test_a_manifest_that_is_complete_is_not_applied_again(bench: WorkBench):
    """Neither when its object is deleted nor when the work changes."""
    rules = [cel("Complete", "object.data.phase == 'done'")]
    async with bench.agent():
        await bench.create(
            work(
                "complete",
                config_map("complete", phase="done"),
                manifestConfigs=watching("complete", conditionRules=rules),
            )
        )
        await bench.until_condition("complete", "Complete", "True")
        await bench.admin.delete(CONFIG_MAPS, Key("default", "complete"))
        await bench.until_condition("complete", "Available", "False")

        await bench.change("complete", workload={"manifests": [config_map("complete", b="1")]})

        await bench.until_condition("complete", "Complete", "True")
        assert await bench.data("complete") is None
    async with bench.agent():
        await bench.create(work("other", config_map("other", a="1")))
        await bench.until_condition("other", "Applied", "True")
        assert await bench.data("complete") is None
        await bench.delete("complete")
        await bench.delete("other")


async def test_a_status_that_was_changed_by_others_is_put_right(bench: WorkBench):
    async with bench.agent():
        await bench.create(work("status", config_map("status", a="1")))
        found = await bench.until_condition("status", "Applied", "True")
        wrong: Object = {"status": {"conditions": [], "resourceStatus": {"manifests": []}}}
        await bench.admin.patch(WORKS, Key(CLUSTER, "status"), wrong, subresource="status")

        again = await bench.until_condition("status", "Available", "True")

        assert feedback(again) == feedback(found)
        assert len(again["status"]["resourceStatus"]["manifests"]) == 1
        await bench.delete("status")
