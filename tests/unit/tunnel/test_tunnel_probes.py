"""Whether a cluster is reached without the tunnel: what agents say of one decides on no other."""

from typing import cast

from msgspec.structs import replace

from knfleet.hub.profiles.cluster_profile import ClusterAccess
from knfleet.hub.tunnel.publication import TunnelPublication
from knfleet.hub.tunnel.tunnel_server import TunnelServer


async def test_what_another_agent_says_of_the_same_server_decides_nothing():
    asked: list[ClusterAccess] = []

    async def probe(access: ClusterAccess) -> bool:
        asked.append(access)
        return not access.tls_server_name and not access.proxy_url

    publication = TunnelPublication(cast("TunnelServer", None), probe)
    own = ClusterAccess("https://c1.example.com", "Q0E=")
    for foreign in (
        replace(own, tls_server_name="wrong"),
        replace(own, proxy_url="http://nowhere.example.com"),
    ):
        assert not await publication.is_direct(foreign)

    assert await publication.is_direct(own)
    assert await publication.is_direct(own)
    assert len(asked) == 3


async def test_large_authorities_are_not_kept():
    async def probe(_: ClusterAccess) -> bool:
        return True

    publication = TunnelPublication(cast("TunnelServer", None), probe)

    await publication.is_direct(ClusterAccess("https://c1.example.com", "Q0E=" * 250_000))

    assert [len(each) for each in publication.probed] == [32]
