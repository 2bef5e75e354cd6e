"""jq, in a process of its own: an expression can run for ever or take all memory.

The process gets a second of CPU and a limit on memory; without the Python package `jq`, or when an
expression is of no use, the manifest is not applied and its condition says why.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from knfleet.agent.work.desired.ignore_fields import IgnoreFieldError
from knfleet.api.meta import Object
from knfleet.kube.untrusted_json import decode_json

SECONDS = 10.0
"""How long to wait for the process, which may have to be loaded first."""
CPU_SECONDS = 1
MEMORY_BYTES = 512 * 1024 * 1024
LARGEST = 8 * 1024 * 1024
LONGEST = 4096

PROGRAM = f"""
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS}))
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
try:
    import jq
except ImportError:
    sys.exit("the Python package jq is not installed")
asked = json.load(sys.stdin)
value = asked["manifest"]
for expression in asked["expressions"]:
    try:
        found = jq.compile("del(" + expression + ")").input_value(value).all()
    except ValueError as error:
        sys.exit("jq expression error in '" + expression + "': " + str(error).strip())
    if len(found) != 1 or not isinstance(found[0], dict):
        sys.exit("jq expression '" + expression + "' does not result in one object")
    value = found[0]
json.dump(value, sys.stdout)
"""


class JqRunner:
    """Deletes what jq path expressions lead to."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()

    async def delete(self, manifest: Object, expressions: Sequence[str]) -> Object:
        """A manifest without the fields at some paths. Raises IgnoreFieldError."""
        if any(len(each) > LONGEST for each in expressions):
            raise IgnoreFieldError(f"a jq expression has more than {LONGEST} characters")
        asked = msgspec.json.encode({"manifest": manifest, "expressions": list(expressions)})
        async with self.turn:
            answer = await self.ask(asked)
        try:
            return decode_json(answer, dict[str, Any])
        except msgspec.DecodeError as error:
            raise IgnoreFieldError("jq did not answer with an object") from error

    async def ask(self, asked: bytes) -> bytes:
        """What the process answers."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-c", PROGRAM),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={},
        )
        try:
            async with asyncio.timeout(SECONDS):
                answer, said = await process.communicate(asked)
        except TimeoutError as error:
            raise IgnoreFieldError(f"jq did not end in {SECONDS:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode or len(answer) > LARGEST:
            lines = said.decode(errors="replace").strip().splitlines()
            problem = lines[-1] if lines else "it took too much time or memory"
            raise IgnoreFieldError(f"jq: {problem[:300]}")
        return answer
