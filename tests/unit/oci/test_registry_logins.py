"""Logins for registries: where they are found, and to whom they are given."""

import base64
import json
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from aiohttp import web

from knfleet.oci.errors import BadImage
from knfleet.oci.image_reference import registry_place
from knfleet.oci.registry_client import RegistryClient
from knfleet.oci.registry_login import RegistryLogin, registry_logins
from tests.support.loopback import on_loopback

SECRET = "correct horse battery"


def entry(user: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{SECRET}".encode()).decode()}


async def test_the_narrowest_entry_of_a_file_is_taken(tmp_path: Path) -> None:
    """Docker Hub has a key of its own."""
    path = tmp_path / "config.json"
    auths = {
        "https://index.docker.io/v1/": entry("hub"),
        "r.example.com": entry("all"),
        "r.example.com/team": entry("team"),
    }
    path.write_text(json.dumps({"auths": auths}))
    logins = registry_logins(path)

    found = [
        await logins.find(registry, repository)
        for registry, repository in (
            ("docker.io", "library/envoy"),
            ("r.example.com", "other/app"),
            ("r.example.com", "team/app"),
            ("s.example.com", "app"),
        )
    ]

    assert [each.user if each else None for each in found] == ["hub", "all", "team", None]
    assert SECRET not in repr(found)


async def test_a_credential_helper_is_asked_for_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its standard input; one that fails knows no login."""
    helper = tmp_path / "docker-credential-test"
    helper.write_text(
        "#!/bin/sh\nread -r host\n[ $1 = get ] && [ $host = r.example.com ] || exit 1\n"
        f'printf \'{{"Username": "me", "Secret": "{SECRET}"}}\'\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"credsStore": "test"}))
    logins = registry_logins(path)

    assert await logins.find("r.example.com", "app") == RegistryLogin("me", SECRET)
    assert await logins.find("s.example.com", "app") is None


@pytest.mark.parametrize(
    "content",
    [SECRET, json.dumps({"auths": {"r": {"auth": [SECRET]}}}), json.dumps({"auths": SECRET})],
)
def test_a_file_that_cannot_be_read_is_named_without_its_content(
    content: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)

    with pytest.raises(BadImage) as caught:
        registry_logins(path)

    assert str(path) in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_a_login_is_exchanged_for_a_token(tmp_path: Path) -> None:
    """As registries ask for it; the registry itself gets the token alone."""
    content = json.dumps({"schemaVersion": 2, "manifests": []}).encode()
    given: list[str] = []

    async def registry(request: web.Request) -> web.StreamResponse:
        header = request.headers.get("Authorization", "")
        if request.path == "/token":
            given.append(header)
            assert parse_qs(request.query_string)["scope"] == ["repository:app:pull"]
            return web.json_response({"token": "short-lived"})
        if header == "Bearer short-lived":
            kind = "application/vnd.oci.image.index.v1+json"
            return web.Response(body=content, content_type=kind)
        assert not header
        challenge = f'Bearer realm="http://{request.host}/token",service="s"'
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

    async with on_loopback(tmp_path / "ports", registry) as url:
        place = registry_place(url)
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"auths": {place.host: entry("me")}}))
        async with RegistryClient(registry_logins(path), wait_seconds=0) as client:
            found = await client.manifest(place, "app", "v1")

    assert found is not None
    assert found.content == content
    assert given == [RegistryLogin("me", SECRET).basic]
