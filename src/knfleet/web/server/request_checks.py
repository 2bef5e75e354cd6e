"""What every request must pass, and what every answer carries.

A page of another site must not be able to read or do anything here: names that are not ours are
refused (DNS rebinding), forms must come from our own pages and bring the session's token, and the
browser loads and runs nothing but our own files.
"""

from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from knfleet.web.server.settings import WebSettings

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


async def harden(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers for browsers; as a signal, so that streams and errors get it too."""
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.pop("Server", None)


def host_name(header: str) -> str:
    """The name of a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].casefold()


def check_host(request: web.Request, settings: WebSettings) -> None:
    """Refuse names that are not ours."""
    name = host_name(request.headers.get("Host", ""))
    if not settings.allows(name):
        raise web.HTTPMisdirectedRequest(
            text="This dashboard does not answer under that name. Open it by the address that was"
            " printed when it started, or have it started with --web-name."
        )


async def read_form(request: web.Request) -> dict[str, str]:
    """The fields of a form; what cannot be read is the fault of the one who sent it."""
    try:
        fields = await request.post()
    except (ValueError, LookupError, RuntimeError, HttpProcessingError) as error:
        # RuntimeError: a field with a Content-Transfer-Encoding that aiohttp does not know.
        raise web.HTTPBadRequest(text="This form cannot be read; load the page again.") from error
    return {name: str(value) for name, value in fields.items()}


def check_origin(request: web.Request) -> None:
    """Refuse forms that do not come from our own pages."""
    origin = request.headers.get("Origin", "")
    site = request.headers.get("Sec-Fetch-Site", "")
    if origin not in ("", "null"):
        # Pages that send no referrer send no origin either, and the browser says so in its way.
        is_ours = urlsplit(origin).netloc.casefold() == request.headers.get("Host", "").casefold()
    else:
        is_ours = site == "same-origin"
    if not is_ours or site not in ("", "same-origin"):
        raise web.HTTPForbidden(text="This form did not come from the dashboard's own pages.")
