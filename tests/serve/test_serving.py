"""An installation that we made serves: with Knative's programs, Envoy and functions that run."""

import pytest

from testbed.serve.ground import FUNCTION
from tests.serve.site import BROKERS, EVENTING, EVENTINGS, SERVING, SERVINGS, Site, subscribe

pytestmark = pytest.mark.soak

VERIFY = ("--image", FUNCTION, "--text", "Hello", "--timeout", "300")


async def test_requests_are_answered_and_functions_scale_to_zero_and_back(site: Site) -> None:
    """A request through Kourier gets a pod when there is none; verify passes, until one breaks."""
    await site.install(SERVINGS, SERVING)
    await site.deploy("hello")

    status, text, warm = await site.ask("hello")
    assert (status, text.startswith("Hello World from hello-00001-")) == (200, True), text
    await site.scaled_to_zero("hello")
    status, text, cold = await site.ask("hello")
    assert (status, text.startswith("Hello World from hello-00001-")) == (200, True), text
    assert len(await site.pods("hello")) == 1
    print(f"answered in {warm:.3f} s with a pod, in {cold:.3f} s without one")

    works = await site.type_in("verify", "KnativeServing/knative", *VERIFY)
    assert works.code == 0, works
    assert "VerificationSucceeded" in works.out

    await site.hub.change(SERVINGS, config={"network": {"ingress-class": "nobody.example.com"}})
    waited = await site.type_in("wait", "KnativeServing/knative", "--timeout", "300")
    assert waited.code == 0, waited
    broken = await site.type_in("verify", "KnativeServing/knative", *VERIFY)
    assert broken.code == 1, broken
    assert "VerificationFailed" in broken.out


async def test_an_event_reaches_a_function_that_has_no_pod(site: Site) -> None:
    """Through Broker, channel and Trigger; verify passes, until Brokers have no controller."""
    await site.install(SERVINGS, SERVING)
    await site.install(EVENTINGS, EVENTING)
    await site.deploy("receiver")
    await site.create(BROKERS, "news", {})
    await site.is_ready(BROKERS, "news")
    await subscribe(site, "news", "receiver")
    await site.scaled_to_zero("receiver")

    await site.send("news", "first")
    received = await site.received("receiver")

    assert received == [
        {
            "id": "first",
            "type": "dev.knfleet.test",
            "source": "/tests",
            "data": '{"greeting": "hello"}',
        }
    ]
    works = await site.type_in("verify", "KnativeEventing/knative", *VERIFY)
    assert works.code == 0, works
    assert "VerificationSucceeded" in works.out

    await site.hub.change(EVENTINGS, defaultBrokerClass="Nobody")
    waited = await site.type_in("wait", "KnativeEventing/knative", "--timeout", "300")
    assert waited.code == 0, waited
    broken = await site.type_in("verify", "KnativeEventing/knative", *VERIFY)
    assert broken.code == 1, broken
    assert "VerificationFailed" in broken.out
