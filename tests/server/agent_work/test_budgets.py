"""How many requests a work costs, on a real API server."""

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Key
from knfleet.api.work.manifestwork import WORKS
from testbed.waiting import until
from tests.support.works import CLUSTER, WorkBench, conditions, config_map, work


async def warm(bench: WorkBench) -> None:
    """Have the kinds discovered and watched that follow."""
    await bench.create(work("warm", config_map("warm", a="1")))
    await bench.until_condition("warm", "Available", "True")
    await until(lambda: bench.requests.of("hub").get("patch", 0) == 2, "all answers are there")
    bench.requests.clear()


async def test_a_work_costs_few_requests_in_its_life(bench: WorkBench):
    async with bench.agent():
        await warm(bench)

        await bench.create(work("cheap", config_map("cheap", a="1")))
        made = await bench.until_condition("cheap", "Applied", "True")
        assert conditions(made)["Available"]["status"] == "True"
        await bench.requests.cost(hub={"patch": 2}, spoke={"create": 2, "patch": 1})

        bench.requests.clear()
        await bench.change("cheap", workload={"manifests": [config_map("cheap", a="2")]})
        await bench.until_condition("cheap", "Applied", "True")
        assert await bench.data("cheap") == {"a": "2"}
        await bench.requests.cost(hub={"patch": 1}, spoke={"get": 1, "replace": 1})

        bench.requests.clear()
        await bench.delete("cheap")
        await bench.requests.cost(hub={"patch": 1}, spoke={"delete": 2, "patch": 1})
        assert await bench.data("cheap") is None
        assert not bench.requests.refused
        await bench.delete("warm")


async def test_what_is_as_it_was_left_costs_nothing(bench: WorkBench):
    """Also after a restart of the agent."""
    async with bench.agent():
        for number in range(5):
            await bench.create(work(f"idle{number}", config_map(f"idle{number}", a="1")))
        for number in range(5):
            await bench.until_condition(f"idle{number}", "Available", "True")
    bench.requests.clear()

    async with bench.agent() as controller:
        wanted = {f"idle{number}" for number in range(5)}
        await until(lambda: wanted <= set(controller.states), "all works are planned")
        await until(lambda: not controller.works.queue.running, "all works were looked at")
        await until(lambda: not controller.works.queue.ready, "all works were looked at")
        # A change is handled after everything else.
        await bench.change("idle0", workload={"manifests": [config_map("idle0", a="2")]})
        await bench.until_data("idle0", {"a": "2"})
        await bench.until_condition("idle0", "Applied", "True")

        await bench.requests.cost(hub={"patch": 1}, spoke={"get": 1, "replace": 1})
        for number in range(5):
            await bench.admin.delete(WORKS, Key(CLUSTER, f"idle{number}"))
        for number in range(5):
            await bench.until_gone(f"idle{number}")
        left = await bench.admin.list(CONFIG_MAPS, "default")
        assert not [each for each in left.items if each["metadata"]["name"].startswith("idle")]
