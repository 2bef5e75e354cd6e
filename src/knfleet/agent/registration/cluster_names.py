"""What a cluster and its agent are called."""

import re
import secrets
import string

from msgspec import Struct

from knfleet.api.cluster.managedcluster import (
    NAME_PATTERN,
    RESERVED_NAMES,
    RESERVED_PREFIX,
    agent_user,
)

AGENT_LETTERS = 5
LONGEST_NAME = 63
SYSTEM_NAMES = ("default", "open-cluster-management")
SYSTEM_PREFIXES = ("kube-", "open-cluster-management-")


class AgentNames(Struct, frozen=True):
    """The name of a cluster on its hub, and that of its agent."""

    cluster: str
    agent: str

    @property
    def user(self) -> str:
        """Who the agent is to the hub's API server."""
        return agent_user(self.cluster, self.agent)


def random_agent() -> str:
    """A name for an agent that has none."""
    letters = string.ascii_lowercase + string.digits
    return "".join(secrets.choice(letters) for _ in range(AGENT_LETTERS))


def name_problem(name: str) -> str:
    """Why a cluster cannot have this name, and what to do; empty when it can."""
    if len(name) > LONGEST_NAME:
        return f"it has {len(name)} characters; choose one with at most {LONGEST_NAME}"
    if not re.fullmatch(NAME_PATTERN.strip("^$"), name):
        return "choose one of a-z, 0-9 and -, that begins and ends with a letter or digit"
    if name in SYSTEM_NAMES or name.startswith(SYSTEM_PREFIXES):
        return "it is the name of a system namespace; choose another"
    return ""


def new_name_problem(name: str) -> str:
    """Why a cluster that is not known yet cannot have this name; empty when it can."""
    if name in RESERVED_NAMES or name.startswith(RESERVED_PREFIX):
        return "it is reserved, for something else is called so; choose another"
    return name_problem(name)
