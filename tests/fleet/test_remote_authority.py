"""The authority behind a spoke's certificate changes, as it does every few years."""

import asyncio
import base64
import ssl
from pathlib import Path

import pytest

from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Object
from knfleet.dev import ports
from knfleet.kube.endpoint import Endpoint
from testbed.fakes.certificates import Authority
from tests.support.fleets import PROVIDER, Fleet, Road

pytestmark = pytest.mark.full


class Front(Road):
    """A road whose end shows a certificate of its own, as a load balancer in front does."""

    def __init__(self, endpoint: Endpoint, folder: Path) -> None:
        super().__init__(endpoint.server)
        self.folder = folder
        assert endpoint.ca is not None
        self.behind = ssl.create_default_context(cadata=endpoint.ca.decode())

    async def show(self, authority: Authority) -> str:
        """Show a certificate of this authority, at the same address as before."""
        await self.close()
        if not self.port:
            (self.port,) = ports.reserve(1, ports.DEFAULT_RANGE, self.folder / "front")
        pair = authority.server()
        chain = self.folder / "front.pem"
        chain.write_bytes(pair.certificate + pair.key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(chain)
        self.server = await asyncio.start_server(self.carry, "127.0.0.1", self.port, ssl=context)
        return f"https://127.0.0.1:{self.port}"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the API server."""
        return await asyncio.open_connection(self.host, self.target, ssl=self.behind)


async def test_a_new_authority_is_told_and_counts_as_soon_as_the_profile_has_it(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Without a restart; the other spoke notices nothing."""
    old, new = Authority("old"), Authority("new")
    front = fleet.one.road = Front(fleet.one.lent.connection.endpoint, tmp_path)
    server = await front.show(old)
    await fleet.profile("spoke1", accessProviders=[access(fleet, server, old)])
    await fleet.start()
    await fleet.deploy()
    await fleet.deploy("other", on="spoke2")
    await fleet.hub.ready(SERVINGS, "1.23.0")
    await fleet.hub.ready(SERVINGS, "1.23.0", "other")

    await front.show(new)

    await fleet.lost("issuer certificate", reason="RemoteClientCreationFailed")
    assert (await fleet.conditions("other"))["Ready"] == "True"

    await fleet.profile("spoke1", accessProviders=[access(fleet, server, new)])
    await fleet.hub.ready(SERVINGS, "1.23.0")


def access(fleet: Fleet, server: str, authority: Authority) -> Object:
    """The way to the first spoke, by an authority."""
    trusted = base64.b64encode(authority.pem).decode()
    cluster = fleet.one.cluster(server) | {"certificate-authority-data": trusted}
    return {"name": PROVIDER, "cluster": cluster}
