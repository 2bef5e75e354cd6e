"""How the image of a verification is started. Pure.

Two programs are known by the last part of their repository, so that a copy in any registry works:
`http-echo`, and our own. Any other image must listen on $PORT by itself.
"""

from collections.abc import Callable

from msgspec import Struct

from knfleet.api.knative.verification import VerifyRequest
from knfleet.api.meta import Object

PORT = 8080
"""What $PORT is, as Knative has it."""
ECHO_PORT = 5678
"""Where http-echo listens, whatever $PORT is."""


class KnownProgram(Struct, frozen=True):
    """A program that answers with a text of ours."""

    arguments: Callable[[str], list[str]]
    port: int = PORT


PROGRAMS = {
    "http-echo": KnownProgram(lambda text: [f"-text={text}"], ECHO_PORT),
    "knfleet": KnownProgram(lambda text: ["verify-server", f"--text={text}"]),
}


def program_of(image: str) -> KnownProgram | None:
    """The known program that an image holds."""
    repository = image.partition("@")[0].rpartition("/")[2]
    return PROGRAMS.get(repository.partition(":")[0])


def listen_port(image: str) -> int:
    """Where the server of an image listens."""
    program = program_of(image)
    return PORT if program is None else program.port


def container(name: str, image: str, request: VerifyRequest) -> Object:
    """The container of a verification; its image must be known."""
    made: Object = {"image": image}
    program = program_of(image)
    if program is not None:
        made["args"] = program.arguments(expected_text(name, image, request))
    return made


def expected_text(name: str, image: str, request: VerifyRequest) -> str:
    """What an answer must contain; with a known program, what only this run can know."""
    if program_of(image) is None:
        return request.text
    return f"{name} {request.text}".strip()
