"""The hub's webhook server, called by a real API server and by others."""

import asyncio
import base64
import io
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest

from knfleet.api.addon.conversion import CONVERSION_PATH
from knfleet.api.core import SECRETS, VALIDATING_WEBHOOKS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import OPERATOR_NAMESPACE, WEBHOOK_SERVICE
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.certificates.port_certificates import (
    CA_LIFE,
    PortCertificates,
    service_names,
)
from knfleet.hub.manager import HubManager
from knfleet.hub.webhook.webhook_objects import (
    SECRET,
    WORK_PATH,
    WORK_VALIDATION,
    work_validation,
)
from knfleet.hub.webhook.webhook_server import BODY_BYTES
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import ApiError, BadRequest
from knfleet.runtime.http.listen_address import ListenAddress
from testbed import hubs
from testbed.fakes.sockets import free_port
from testbed.waiting import until
from tests.support.hub_works import config_map, kept, large, work

BY_URL = "by-url.example.com"
TOO_LARGE = "exceeds the 512000 limit"


def somewhere() -> ListenAddress:
    """An address on this machine."""
    return ListenAddress("127.0.0.1", free_port())


async def certificates(fleet: Client) -> PortCertificates:
    """What the Secret holds."""
    found = PortCertificates.of(await fleet.get(SECRETS, SECRET, OPERATOR_NAMESPACE))
    assert found is not None
    return found


async def injected(fleet: Client) -> str:
    """The CA in the configuration of the Service."""
    found = await fleet.get(VALIDATING_WEBHOOKS, WORK_VALIDATION)
    return found["webhooks"][0]["clientConfig"].get("caBundle", "")


async def is_injected(fleet: Client) -> bool:
    """Whether the API server trusts what is served."""
    bundle = (await certificates(fleet)).bundle
    return await injected(fleet) == base64.b64encode(bundle).decode()


@asynccontextmanager
async def serving(fleet: Client, connection: Connection) -> AsyncGenerator[HubManager, None]:
    """A hub whose webhook the API server calls by its address: there are no pods here."""
    async with hubs.running(connection, webhook=somewhere()) as running:
        assert running.webhook is not None
        await asyncio.wait_for(running.webhook.listening.wait(), 60)
        await until(lambda: is_current(fleet, running), "what is kept is served")
        await fleet.apply(VALIDATING_WEBHOOKS, await by_url(fleet, running))
        try:
            yield running
        finally:
            await fleet.delete(VALIDATING_WEBHOOKS, Key("", BY_URL))


async def by_url(fleet: Client, running: HubManager) -> Object:
    """The configuration with an address instead of the Service, for works of one namespace."""
    assert running.webhook is not None
    assert running.webhook.address is not None
    made = work_validation(OPERATOR_NAMESPACE)
    (hook,) = made["webhooks"]
    port = running.webhook.address[1]
    bundle = base64.b64encode((await certificates(fleet)).bundle).decode()
    hook["clientConfig"] = {"url": f"https://localhost:{port}{WORK_PATH}", "caBundle": bundle}
    hook["name"] = BY_URL
    made["metadata"]["name"] = BY_URL
    return made


async def refusal(client: Client, manifest: Object) -> str:
    """What the API server says about a new work; empty when it takes it."""
    try:
        await client.create(WORKS, manifest, "default", dry_run=True)
    except ApiError as error:
        return error.message
    return ""


async def test_works_that_are_too_large_or_have_a_manifest_twice_are_refused(
    fleet: Client, fleet_connection: Connection
):
    """As long as the hub runs; without it writes go on."""
    oversize = work("large", *large(10, 51_300))
    twice = work("twice", config_map("a"), config_map("a"))
    fits = work("fits", *large(9, 51_300))
    await fleet.create(WORKS, kept(oversize), "default")
    async with serving(fleet, fleet_connection):

        async def is_asked() -> bool:
            return TOO_LARGE in await refusal(fleet, oversize)

        await until(is_asked, "too large is refused")
        assert "duplicate manifest for resource default/a" in await refusal(fleet, twice)
        assert await refusal(fleet, fits) == ""
        await fleet.create(WORKS, fits, "default")
        grown = {"spec": oversize["spec"]}
        with pytest.raises(BadRequest, match=TOO_LARGE):
            await fleet.patch(WORKS, Key("default", "fits"), grown)
        # What was let in before the hub ran can still be changed and deleted.
        await fleet.patch(WORKS, Key("default", "large"), {"metadata": {"finalizers": None}})
        await fleet.delete(WORKS, Key("default", "large"))

    assert await refusal(fleet, oversize) == ""
    assert await refusal(fleet, work("", config_map(""))) != ""


async def test_replicas_share_certificates_that_are_kept_and_injected(
    fleet: Client, fleet_connection: Connection
):
    """What others change of the Secret or the configuration is put right, with hub's own rights."""
    async with (
        hubs.running(fleet_connection, webhook=somewhere()) as one,
        hubs.running(fleet_connection, webhook=somewhere()) as other,
    ):
        assert one.webhook is not None
        assert other.webhook is not None
        await asyncio.wait_for(one.webhook.listening.wait(), 60)
        await asyncio.wait_for(other.webhook.listening.wait(), 60)
        await until(lambda: is_injected(fleet), "the CA is injected")

        async def is_shared() -> bool:
            assert one.webhook is not None
            assert other.webhook is not None
            served = (await certificates(fleet)).certificate
            return one.webhook.certificate == other.webhook.certificate == served

        await until(is_shared, "both serve the same")
        first = await certificates(fleet)

        path = "/webhooks/0/clientConfig/caBundle"
        await fleet.patch(
            VALIDATING_WEBHOOKS, Key("", WORK_VALIDATION), [{"op": "remove", "path": path}]
        )
        await until(lambda: is_injected(fleet), "the CA is injected again")
        assert await certificates(fleet) == first

        broken = {"data": {"tls.key": "aGVsbG8="}}
        await fleet.patch(SECRETS, Key(OPERATOR_NAMESPACE, SECRET), broken)

        async def is_renewed() -> bool:
            found = PortCertificates.of(await fleet.get(SECRETS, SECRET, OPERATOR_NAMESPACE))
            return found is not None and found != first

        await until(is_renewed, "there are new certificates")
        await until(is_shared, "both serve them")
        await until(lambda: is_injected(fleet), "their CA is injected")
        await hubs.install(fleet_connection)
        assert await is_injected(fleet)

        await fleet.delete(SECRETS, Key(OPERATOR_NAMESPACE, SECRET))
        await until(lambda: exists(fleet), "the Secret is back")
    before = await certificates(fleet)
    async with hubs.running(fleet_connection, ahead=CA_LIFE * 0.6, webhook=somewhere()):
        await until(lambda: is_new(fleet, before.certificate), "the certificate is renewed")
        assert (await certificates(fleet)).bundle == before.bundle
    async with hubs.running(fleet_connection, ahead=CA_LIFE * 0.7, webhook=somewhere()):

        async def has_two() -> bool:
            return len((await certificates(fleet)).authorities) == 2

        await until(has_two, "a new CA is beside the old one")
        assert (await certificates(fleet)).authorities[1] == before.authorities[0]
        await until(lambda: is_injected(fleet), "both are injected")


async def is_current(fleet: Client, running: HubManager) -> bool:
    """Whether a hub serves what is kept, and API servers trust it."""
    assert running.webhook is not None
    kept = await certificates(fleet)
    is_valid = kept.serving.not_valid_before_utc <= datetime.now(UTC)
    is_served = running.webhook.certificate == kept.certificate
    return is_valid and is_served and await is_injected(fleet)


async def is_new(fleet: Client, old: bytes) -> bool:
    """Whether another certificate is served."""
    return (await certificates(fleet)).certificate != old


async def exists(fleet: Client) -> bool:
    """Whether there is a usable Secret."""
    found = await fleet.list(SECRETS, OPERATOR_NAMESPACE, fields=f"metadata.name={SECRET}")
    return bool(found.items) and PortCertificates.of(found.items[0]) is not None


async def test_requests_that_no_api_server_makes_are_refused(
    fleet: Client, fleet_connection: Connection
):
    """By their size, content, method or path; and the certificate is that of the Service."""
    async with hubs.running(fleet_connection, webhook=somewhere()) as running:
        assert running.webhook is not None
        await asyncio.wait_for(running.webhook.listening.wait(), 60)
        await until(lambda: is_current(fleet, running), "what is kept is served")
        assert running.webhook.address is not None
        name, _ = service_names(WEBHOOK_SERVICE, OPERATOR_NAMESPACE)
        bundle = (await certificates(fleet)).bundle.decode()
        trusting = ssl.create_default_context(cadata=bundle)
        base = f"https://127.0.0.1:{running.webhook.address[1]}"
        async with aiohttp.ClientSession(base) as session:

            async def status(method: str, path: str, body: bytes = b"") -> int:
                sent = io.BytesIO(body)
                async with session.request(
                    method, path, data=sent, ssl=trusting, server_hostname=name
                ) as answer:
                    return answer.status

            assert await status("POST", WORK_PATH, b"{}") == 400
            assert await status("POST", WORK_PATH, b"\xff" * 100_000) == 400
            assert await status("POST", WORK_PATH, b" " * (BODY_BYTES + 1)) == 413
            assert await status("POST", CONVERSION_PATH, b"{}") == 400
            assert await status("GET", WORK_PATH) == 405
            assert await status("POST", "/other") == 404
            many = await asyncio.gather(*(status("POST", WORK_PATH, b"{}") for _ in range(50)))
            assert set(many) == {400}
