"""A process that wants to lead, for tests that make its life hard.

As leader it acts fifty times a second: it passes the fence, and appends a line to a file that all
contenders share. Line: identity, time before the fence, time after it.
"""

import asyncio
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from knfleet.api.meta import ClusterName, Key
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.runtime import logs
from knfleet.runtime.leader.leader import Leader, LeaderOptions, LostLeadership
from knfleet.runtime.leader.lease_rules import LeaseTiming
from knfleet.runtime.manager import Manager
from knfleet.runtime.process import run_process


class Setup(msgspec.Struct, frozen=True):
    """What a contender is told."""

    identity: str
    server: str
    folder: str
    acts: str
    lease: str
    timing: LeaseTiming
    wall_offset_seconds: float = 0


class Actor:
    """What only the leader may do."""

    def __init__(self, leader: Leader, acts: Path) -> None:
        self.leader = leader
        self.acts = os.open(acts, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def run(self) -> None:
        while True:
            begin = time.monotonic()
            try:
                self.leader.require()
            except LostLeadership:
                # The election ends the process; this must only not act any more.
                await asyncio.Event().wait()
            end = time.monotonic()
            os.write(self.acts, f"{self.leader.identity} {begin:.6f} {end:.6f}\n".encode())
            await asyncio.sleep(0.02)


def connection(setup: Setup) -> Connection:
    """The way to the cluster, with the credentials from a folder."""
    folder = Path(setup.folder)
    return Connection(
        ClusterName("hub"),
        Endpoint(setup.server, ca=(folder / "ca.crt").read_bytes()),
        StaticCredential(
            Credential(
                client_certificate=(folder / "client.crt").read_bytes(),
                client_key=(folder / "client.key").read_bytes(),
            )
        ),
    )


async def build(manager: Manager) -> None:
    """A leader and what it does."""
    setup = msgspec.json.decode(sys.argv[1], type=Setup)
    client = Client(connection(setup))
    manager.close_last(client.close)
    offset = timedelta(seconds=setup.wall_offset_seconds)
    leader = Leader(
        client,
        Key("default", setup.lease),
        setup.identity,
        LeaderOptions(timing=setup.timing, wall=lambda: datetime.now(UTC) + offset),
    )
    manager.elect(leader)
    manager.add(Actor(leader, Path(setup.acts)), "actor", leading=True)


if __name__ == "__main__":
    logs.configure("info", "json")
    sys.exit(run_process(build))
