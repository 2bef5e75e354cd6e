"""By which name consumers at the other end of the tunnel verify this cluster's API server."""

import asyncio
import ssl

from yarl import URL

from knfleet.kube.auth.tls import trusting
from knfleet.kube.endpoint import Endpoint
from knfleet.runtime.logs import log

NAME = "kubernetes.default.svc"
"""A name that the certificate of an API server usually has."""
SECONDS = 10.0


async def tunnel_server(endpoint: Endpoint) -> str:
    """The URL of an API server for consumers: by the usual name if its certificate has that.

    Otherwise the address at which we reach it ourselves, whose certificate we verify all the time.
    """
    url = URL(endpoint.server)
    assert url.host is not None
    context = trusting(endpoint.ca)
    try:
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(
                url.host, url.port, ssl=context, server_hostname=NAME
            )
    except ssl.SSLCertVerificationError:
        return str(url.origin())
    except (OSError, TimeoutError) as error:
        log.warning("API server not verified", name=NAME, error=str(error) or "timeout")
        raise
    writer.transport.abort()
    return f"https://{NAME}"
