"""A hub is found by an address, a token and a pin: the token goes to no other server."""

import asyncio
import ssl
from pathlib import Path

import pytest

from knfleet.api.meta import Object
from knfleet.kube.auth import tls
from knfleet.kube.endpoint import Endpoint
from knfleet.workflows.hub_discovery import HubReference, HubUnusable, bootstrap_kubeconfig, find
from knfleet.workflows.join_token import ca_hash, info_objects
from testbed.fakes.certificates import Authority
from testbed.fakes.server import Asked, Server, answer, server_context

TOKEN = "let.me-in"
ALLOWED: Object = {"status": {"allowed": True}}
REAL, OTHER = Authority("real"), Authority("other")
BUNDLES = {
    "the other's": OTHER.pem,
    "both": REAL.pem + OTHER.pem,
    "both, the other way": OTHER.pem + REAL.pem,
}


def hub(authority: Authority, bundle: bytes, published: str = "") -> Server:
    """A server that publishes a bundle, and says yes to everything else."""

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        if not asked.path.endswith("/configmaps/cluster-info"):
            return await answer(ALLOWED)(asked, writer)
        where = Endpoint(published or server.url, ca=bundle)
        return await answer(info_objects(where)[0])(asked, writer)

    server = Server(behave, tls=server_context(authority.server()))
    return server


def told(server: Server) -> bool:
    """Whether a server has seen the token."""
    return any(TOKEN in str(each.headers) for each in server.requests)


@pytest.mark.parametrize("bundle", BUNDLES.values(), ids=BUNDLES)
async def test_one_who_stands_between_does_not_get_the_token(bundle: bytes):
    """Although the right authority is in the bundle that he publishes."""
    async with hub(OTHER, bundle) as server:
        with pytest.raises(HubUnusable, match="--ca-file"):
            await find(HubReference(server.url, TOKEN, ca_hash=ca_hash(REAL.pem)))

        assert not told(server)


@pytest.mark.parametrize("bundle", BUNDLES.values(), ids=BUNDLES)
async def test_neither_does_one_whom_this_machine_trusts(
    bundle: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A pin that was given counts, whatever the machine trusts."""
    trusted = tmp_path / "trusted.crt"
    trusted.write_bytes(OTHER.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    tls.shared.clear()
    async with hub(OTHER, bundle) as server:
        with pytest.raises(HubUnusable, match="--ca-file"):
            await find(HubReference(server.url, TOKEN, ca_hash=ca_hash(REAL.pem)))

        assert not told(server)
        found = await find(HubReference(server.url, TOKEN))
        assert found.endpoint.ca is None


async def test_a_file_with_authorities_is_pinned_too():
    async with hub(OTHER, OTHER.pem) as server:
        for ca in (OTHER.pem, REAL.pem + OTHER.pem):
            with pytest.raises(HubUnusable, match="--ca-file"):
                await find(HubReference(server.url, TOKEN, ca=ca, ca_hash=ca_hash(REAL.pem)))

        assert not told(server)


async def test_only_pinned_authorities_are_handed_on():
    """What the agent trusts from then on is what was pinned."""
    async with hub(REAL, OTHER.pem + REAL.pem) as server:
        found = await find(HubReference(server.url, TOKEN, ca_hash=ca_hash(REAL.pem)))

        assert told(server)
        assert authorities_in(found.endpoint.ca) == authorities_in(REAL.pem)
        assert OTHER.pem.split(b"\n")[3] not in bootstrap_kubeconfig(found.endpoint, TOKEN)


async def test_a_hub_may_have_several_authorities():
    """As while it changes from one to the next: all of them are in the pin."""
    pins = ca_hash(OTHER.pem + REAL.pem)
    async with hub(REAL, OTHER.pem + REAL.pem) as server:
        found = await find(HubReference(server.url, TOKEN, ca_hash=pins))

        assert len(authorities_in(found.endpoint.ca)) == 2


async def test_the_token_is_not_sent_to_a_published_address_in_the_clear():
    async with Server(answer(ALLOWED)) as plain, hub(REAL, REAL.pem, plain.url) as server:
        wanted = HubReference(server.url, TOKEN, ca_hash=ca_hash(REAL.pem), internal=True)
        with pytest.raises(HubUnusable, match="https://"):
            await find(wanted)

        assert not plain.requests


def authorities_in(bundle: bytes | None) -> list[bytes]:
    """The certificates that a bundle makes one trust."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=(bundle or b"").decode())
    return sorted(context.get_ca_certs(binary_form=True))
