"""How people come in: with a token of their own, or on their own machine with the printed key."""

import asyncio
import hmac
import secrets

from msgspec.structs import replace

from knfleet.kube.auth.credentials import Credential, StaticCredential, is_token
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import KubeError, Unauthorized
from knfleet.runtime.logs import log
from knfleet.web.server.authorization import user_of
from knfleet.web.server.sessions import WebSession, WebSessions

AT_ONCE = 4
"""So many tokens are tried at the same time."""
LONGEST = 16 * 1024
ANONYMOUS = "system:anonymous"
USER_OPTIONS = ClientOptions(concurrency=8, reserve=1, deadline_seconds=10, attempts=2)


class LoginFailed(Exception):
    """Why a login failed, as a message."""


class LoginService:
    """Lets people in."""

    def __init__(self, connection: Connection, hub: Client, sessions: WebSessions) -> None:
        self.connection = connection
        self.hub = hub
        self.sessions = sessions
        self.key = secrets.token_urlsafe(24)
        """What opens the dashboard to the one who started it."""
        self.owner = "this kubeconfig's user"
        self.slots = asyncio.Semaphore(AT_ONCE)

    async def know_owner(self) -> None:
        """Find out who the process itself is to the hub."""
        try:
            self.owner = await user_of(self.hub)
        except KubeError as error:
            log.info("SelfSubjectReview failed", error=str(error))

    async def by_key(self, key: str) -> WebSession:
        """Let the owner in; raises `LoginFailed`."""
        if not hmac.compare_digest(key.encode(), self.key.encode()):
            raise LoginFailed("This is not the key of this run; open the address that was printed.")
        return await self.sessions.open(self.owner, self.hub, is_owner=True)

    async def by_token(self, token: str) -> WebSession:
        """Log in a user whose token the hub accepts; raises `LoginFailed`."""
        token = token.strip()
        if not token or len(token) > LONGEST or not is_token(token):
            raise LoginFailed("This is not a bearer token; make one with kubectl create token.")
        credentials = StaticCredential(Credential(token=token))
        client = Client(replace(self.connection, credentials=credentials), USER_OPTIONS)
        is_in = False
        try:
            async with self.slots:
                user = await user_of(client)
            if user == ANONYMOUS:
                raise LoginFailed("The hub does not know this token.")
            session = await self.sessions.open(user, client)
            is_in = True
        except Unauthorized as error:
            raise LoginFailed("The hub does not know this token, or it has expired.") from error
        except KubeError as error:
            raise LoginFailed(f"The hub cannot verify this token:  {error}.") from error
        finally:
            if not is_in:
                await client.close()
        log.info("came to the dashboard", user=user)
        return session
