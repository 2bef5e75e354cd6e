"""AWS on loopback: IAM and STS of moto, access entries of EKS as AWS has them, and faults.

Moto has no access entries, so they are here: created only for roles that exist, as in EKS.
"""

import asyncio
import importlib
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit

from aiohttp import ClientSession, web
from moto.backends import get_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from msgspec import Struct
from werkzeug.test import Client as WsgiClient

from testbed.fakes.sockets import free_port

# The library has no types.
auth: Any = importlib.import_module("botocore.auth")
requests: Any = importlib.import_module("botocore.awsrequest")
credentials: Any = importlib.import_module("botocore.credentials")

ALGORITHM = "AWS4-HMAC-SHA256"
HUB_ACCOUNT = "123456789012"
"""Moto's own account, in which calls with any key are."""
ENTRIES = re.compile(r"/clusters/([^/]+)/access-entries(?:/([^/]+))?")
CREDENTIAL = re.compile(r"Credential=[^/]+/\d{8}/[^/]+/([^/]+)/")


class AwsFault(Struct, frozen=True):
    """An answer that a service gives instead of its own."""

    status: int
    code: str
    message: str = "by a test"


class FakeAws:
    """The services, and what was called."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        """The one EKS cluster of the account."""
        self.address = ""
        self.application = DomainDispatcherApplication(create_backend_app)
        self.entries: dict[str, dict[str, Any]] = {}
        """Access entries of the cluster, by the ARN of the principal."""
        self.calls: list[str] = []
        self.fault: Callable[[str], AwsFault | None] = lambda _: None
        """The fault for a call, if there is to be one."""

    def reset(self) -> None:
        """Forget everything."""
        for service in ("iam", "sts"):
            get_backend(service).reset()
        self.entries.clear()
        self.calls.clear()

    @property
    def environment(self) -> dict[str, str]:
        """What a process in the hub's account needs."""
        return {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "not-secret",
        }

    def roles(self) -> dict[str, Any]:
        """The roles in the hub's account, by name."""
        return {role.name: role for role in get_backend("iam")[HUB_ACCOUNT]["aws"].roles.values()}

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request."""
        body = await request.read()
        action = action_of(request, body)
        self.calls.append(action)
        if fault := self.fault(action):
            return faulty(fault, is_json=ENTRIES.match(request.rel_url.raw_path) is not None)
        if found := ENTRIES.fullmatch(request.rel_url.raw_path):
            return self.entry_answer(request.method, found, await request.json() if body else {})
        return await asyncio.to_thread(self.by_moto, request, body)

    def by_moto(self, request: web.Request, body: bytes) -> web.Response:
        """What moto answers."""
        headers = dict(request.headers.items())
        if not body:
            # Of a presigned call: moto finds services by the header of a signature alone.
            query = request.rel_url.query
            if not self.is_signed(str(request.rel_url), headers):
                return faulty(AwsFault(403, "SignatureDoesNotMatch"), is_json=False)
            body = request.rel_url.raw_query_string.encode()
            headers["Authorization"] = f"{ALGORITHM} Credential={query['X-Amz-Credential']}"
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        response = WsgiClient(self.application).open(
            request.rel_url.raw_path, method="POST", headers=list(headers.items()), data=body
        )
        kind = str(response.headers.get("Content-Type", "text/xml")).partition(";")[0]
        return web.Response(status=response.status_code, body=response.data, content_type=kind)

    def is_signed(self, url: str, headers: dict[str, str]) -> bool:
        """Whether a presigned call was signed with the keys of a role, by AWS's own library."""
        split = urlsplit(url)
        pairs = parse_qsl(split.query)
        query = dict(pairs)
        access, _, scope = query["X-Amz-Credential"].partition("/")
        keys = self.keys_of(access)
        _, region, service, _ = scope.split("/")
        signed = [(name, text) for name, text in pairs if name != "X-Amz-Signature"]
        names = query["X-Amz-SignedHeaders"].split(";")
        lower = {name.lower(): text for name, text in headers.items()}
        plain = requests.AWSRequest(
            "GET",
            f"https://{lower['host']}{split.path}?{urlencode(signed, quote_via=quote)}",
            {name: lower.get(name, "") for name in names if name != "host"},
        )
        if keys is None or query["X-Amz-Security-Token"] != keys.token:
            return False
        signer = auth.SigV4QueryAuth(keys, service, region)
        plain.context["timestamp"] = query["X-Amz-Date"]
        text = signer.string_to_sign(plain, signer.canonical_request(plain))
        return signer.signature(text, plain) == query["X-Amz-Signature"]

    def keys_of(self, access: str) -> Any:
        """The keys that STS gave to one who assumed a role."""
        for backends in get_backend("sts").values():
            for role in backends["aws"].assumed_roles:
                if role.access_key_id == access:
                    return credentials.Credentials(
                        access, role.secret_access_key, role.session_token
                    )
        return None

    def entry_answer(self, method: str, found: re.Match[str], body: dict[str, Any]) -> web.Response:
        """What EKS answers about access entries."""
        if unquote(found[1]) != self.cluster:
            return eks_error(404, "ResourceNotFoundException", f"No cluster found for {found[1]}.")
        if found[2] is None:
            return self.created(body)
        arn = unquote(found[2])
        if arn not in self.entries:
            return eks_error(404, "ResourceNotFoundException", "The specified principalArn is gone")
        if method == "DELETE":
            del self.entries[arn]
            return web.json_response({})
        if method == "POST":
            self.entries[arn] |= body
        return web.json_response({"accessEntry": self.entries[arn]})

    def created(self, body: dict[str, Any]) -> web.Response:
        """What EKS answers when an access entry is to be created."""
        arn = body["principalArn"]
        if arn.rpartition("/")[2] not in self.roles():
            text = "The specified principalArn is invalid: invalid principal."
            return eks_error(400, "InvalidParameterException", text)
        if arn in self.entries:
            text = "The specified access entry resource is already in use on this cluster."
            return eks_error(409, "ResourceInUseException", text)
        self.entries[arn] = {"clusterName": self.cluster, **body}
        return web.json_response({"accessEntry": self.entries[arn]})


def action_of(request: web.Request, body: bytes) -> str:
    """What is called, as `iam:CreateRole`."""
    scope = CREDENTIAL.search(request.headers.get("Authorization", ""))
    if ENTRIES.fullmatch(request.rel_url.raw_path):
        return f"eks:{request.method}"
    given = parse_qs(body.decode()) or parse_qs(request.rel_url.raw_query_string)
    return f"{scope[1] if scope else 'sts'}:{given.get('Action', ['?'])[0]}"


def faulty(fault: AwsFault, *, is_json: bool) -> web.Response:
    """An error in the format of the service."""
    if is_json:
        return eks_error(fault.status, fault.code, fault.message)
    text = f"<Error><Code>{fault.code}</Code><Message>{fault.message}</Message></Error>"
    body = f"<ErrorResponse>{text}</ErrorResponse>"
    return web.Response(status=fault.status, text=body, content_type="text/xml")


def eks_error(status: int, code: str, message: str) -> web.Response:
    """An error of EKS."""
    return web.json_response({"__type": code, "message": message}, status=status)


@asynccontextmanager
async def serving(handler: Any) -> AsyncGenerator[str]:
    """An address on loopback where a handler answers everything."""
    port = free_port()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def fake_aws(cluster: str) -> AsyncGenerator[FakeAws]:
    """The services for one EKS cluster."""
    made = FakeAws(cluster)
    async with serving(made.answer) as address:
        made.address = address
        made.reset()
        yield made


async def caller_of(aws: FakeAws, url: str, headers: dict[str, str]) -> str | None:
    """The ARN of the one who signed a call of GetCallerIdentity, as STS tells it."""
    query = url.partition("?")[2]
    async with (
        ClientSession() as session,
        session.get(f"{aws.address}/?{query}", headers=headers) as response,
    ):
        found = re.search(r"<Arn>([^<]+)</Arn>", await response.text())
        return found[1] if found and response.status == 200 else None
