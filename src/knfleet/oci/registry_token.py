"""Tokens for repositories, as registries ask for them: by a challenge that names who gives them."""

import re
from urllib.parse import urlencode, urlsplit

import msgspec
from aiohttp import ClientSession
from msgspec import Struct

from knfleet.kube.untrusted_json import decode_json
from knfleet.oci.errors import RegistryFailed, RegistryRefused
from knfleet.oci.image_reference import is_loopback
from knfleet.oci.registry_login import RegistryLogin

PARAMETER = re.compile(r'(\w+)="([^"]*)"')
MOST_BYTES = 256 * 1024


class TokenAnswer(Struct, frozen=True):
    """What a token service answers; older ones call the token `token`."""

    token: str = ""
    access_token: str = ""


class Challenge(Struct, frozen=True):
    """How a registry wants to be logged in to."""

    kind: str
    realm: str = ""
    service: str = ""
    scope: str = ""


def challenge(header: str) -> Challenge:
    """The challenge of an answer."""
    kind, _, rest = header.strip().partition(" ")
    values = dict(PARAMETER.findall(rest))
    return Challenge(
        kind.lower(), values.get("realm", ""), values.get("service", ""), values.get("scope", "")
    )


async def authorization(
    session: ClientSession,
    where: str,
    asked: Challenge,
    login: RegistryLogin | None,
    scope: str,
) -> str:
    """The header with which the request is made again."""
    if asked.kind == "basic" and login is not None and login.user:
        return login.basic
    if asked.kind != "bearer":
        raise RegistryRefused(
            f"{where}: the registry requires a login; log in with a container tool, or name its"
            " config.json with --docker-config"
        )
    check_realm(where, asked.realm)
    values = {"service": asked.service, "scope": scope}
    if login is not None and login.identity_token:
        values |= {
            "grant_type": "refresh_token",
            "client_id": "knfleet",
            "refresh_token": login.identity_token,
        }
        request = session.post(asked.realm, data=values, allow_redirects=False)
    else:
        separator = "&" if urlsplit(asked.realm).query else "?"
        headers = {"Authorization": login.basic} if login is not None and login.user else {}
        address = f"{asked.realm}{separator}{urlencode(values)}"
        request = session.get(address, headers=headers, allow_redirects=False)
    async with request as response:
        content = await response.content.read(MOST_BYTES)
        host = urlsplit(asked.realm).netloc
        if response.status in (400, 401, 403):
            who = "the login is wrong or has expired" if login else "there is no login for it"
            raise RegistryRefused(
                f"{where}: {host} gives no token ({response.status}): {who}; log in again with a"
                " container tool, or name its config.json with --docker-config"
            )
        if response.status != 200:
            raise RegistryFailed(f"{where}: {host}, which gives tokens, answered {response.status}")
    try:
        answer = decode_json(content, TokenAnswer)
    except msgspec.MsgspecError:
        raise RegistryFailed(f"{where}: {host} answered something else than a token") from None
    return f"Bearer {answer.token or answer.access_token}"


def check_realm(where: str, realm: str) -> None:
    """Refuse to send a login where others could read it."""
    parts = urlsplit(realm)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.netloc)):
        return
    raise RegistryRefused(
        f"{where}: the registry sends logins to {parts.scheme or 'no'} address"
        f" {parts.netloc or realm[:80]!r}; only https is used for them"
    )
