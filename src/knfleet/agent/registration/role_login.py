"""How an agent logs in to an EKS hub by a role: what its kubeconfig says, and the tokens.

The kubeconfig has an entry by which AWS's own command line logs in, for other programs. The agent
reads the role from it, and makes its tokens itself.
"""

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from knfleet.agent.registration.identity import CONTEXT, USER, HubAddress, hub_kubeconfig
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part
from knfleet.aws.aws_client import AwsClient
from knfleet.aws.aws_errors import AwsError
from knfleet.aws.aws_identity import ProcessIdentity, RoleIdentity
from knfleet.aws.eks_arns import RegistrationRoles
from knfleet.aws.eks_tokens import LIFETIME, eks_token
from knfleet.kube.auth.credentials import Credential
from knfleet.kube.errors import CredentialError, KubeError
from knfleet.kube.yaml import dump_all, load_all

EXEC_API = "client.authentication.k8s.io/v1beta1"
FLAGS = ("--region", "--cluster-name", "--role-arn")


class RoleLogin(Struct, frozen=True):
    """The EKS cluster of a hub, and the role that logs in there."""

    region: str
    cluster: str
    role: str

    @property
    def arguments(self) -> list[str]:
        """The arguments of AWS's command line that prints a token."""
        token = ["eks", "get-token", "--output", "json"]
        values = (self.region, self.cluster, self.role)
        return [*token, *(text for pair in zip(FLAGS, values, strict=True) for text in pair)]


def login_of(roles: RegistrationRoles) -> RoleLogin:
    """How an agent logs in by the role that the hub makes for it."""
    return RoleLogin(roles.hub.region, roles.hub.name, roles.hub_role_arn)


def role_kubeconfig(address: HubAddress, login: RoleLogin) -> bytes:
    """The kubeconfig for a hub where a role logs in."""
    (config,) = load_all(hub_kubeconfig(address), source="the hub kubeconfig")
    plugin: Object = {
        "apiVersion": EXEC_API,
        "command": "aws",
        "args": login.arguments,
        "interactiveMode": "Never",
    }
    return dump_all([{**config, "users": [{"name": USER, "user": {"exec": plugin}}]}]).encode()


def login_in(kubeconfig: bytes) -> RoleLogin | None:
    """How a kubeconfig of ours logs in; None when it is not by a role."""
    try:
        found = load_all(kubeconfig, source="the hub kubeconfig")
    except KubeError:
        return None
    if not found or found[0].get("current-context") != CONTEXT:
        return None
    users = items(found[0], "users")
    given: list[Any] = part(users[0], "user", "exec").get("args") or [] if users else []
    arguments = [str(each) for each in given]
    values = [value_of(arguments, flag) for flag in FLAGS]
    return RoleLogin(*values) if all(values) else None


def value_of(arguments: list[str], flag: str) -> str:
    """The value behind a flag; empty when there is none."""
    at = arguments.index(flag) + 1 if flag in arguments else len(arguments)
    return arguments[at] if at < len(arguments) else ""


class RoleCredentials:
    """Tokens for a hub on EKS, made anew every few minutes."""

    def __init__(self, client: AwsClient, login: RoleLogin) -> None:
        self.login = login
        process = ProcessIdentity(client, login.region)
        self.identity = RoleIdentity(client, login.role, login.region, process)

    async def fetch(self) -> Credential:
        """A token; raises `CredentialError`."""
        try:
            keys = await self.identity.keys()
        except AwsError as error:
            raise CredentialError(str(error)) from error
        now = datetime.now(UTC)
        ends = now + LIFETIME
        if keys.expires is not None:
            ends = min(ends, keys.expires)
        token = eks_token(keys, self.login.cluster, self.login.region, now)
        return Credential(token=token, expires=ends)
