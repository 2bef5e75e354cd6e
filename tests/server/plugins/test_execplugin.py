"""Credential plugins are real programs: here they fail in every way that programs do."""

import asyncio
import base64
import gc
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from knfleet.kube.auth.credentials import CachedCredential, Credential
from knfleet.kube.auth.exec_plugin import ClusterInfo, ExecPlugin
from knfleet.kube.errors import CredentialError
from testbed.fakes.certificates import Authority
from testbed.waiting import PATIENCE_SECONDS, until

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
SECRET = "tok3n-that-nobody-may-see"

Write = Callable[..., str]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No test leaves a child, a zombie or a pipe behind."""
    process = psutil.Process()
    before = set(process.children(recursive=True))
    pipes_before = len(open_pipes())

    yield

    gc.collect()
    left = [child for child in process.children(recursive=True) if child not in before]
    assert left == [], [child.cmdline() for child in left]
    assert len(open_pipes()) <= pipes_before + LIBUV_PIPE_ENDS


def open_pipes() -> list[str]:
    """The ends of pipes that this process holds."""
    return [link for link in open_files() if link.startswith("pipe:")]


def open_files() -> list[str]:
    """What this process holds open."""
    found: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(descriptor.readlink()))
        except OSError:
            continue
    return found


LIBUV_PIPE_ENDS = 2  # opened with its first child, for signals, and kept for good


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a plugin in Python and returns its path."""

    def write(body: str, *, name: str = "plugin", mode: int = 0o755) -> str:
        path = tmp_path / name
        path.write_text(f"#!{sys.executable} -S\n{body}\n")
        path.chmod(mode)
        return str(path)

    return write


def printing(status: dict[str, Any], api_version: str = V1) -> str:
    """The body of a plugin that prints a credential."""
    printed = {"apiVersion": api_version, "kind": "ExecCredential", "status": status}
    return f"print({json.dumps(printed)!r})"


async def refusal(plugin: ExecPlugin) -> str:
    """The message of a fetch that fails; it never has the secret in it."""
    with pytest.raises(CredentialError) as caught:
        await plugin.fetch()
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__
    message = str(caught.value)
    assert plugin.command in message
    assert message.isprintable()
    return message


def is_running(pid_file: Path) -> bool:
    """Whether the process that wrote its number into a file is alive."""
    try:
        return psutil.Process(int(pid_file.read_text())).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, FileNotFoundError, ValueError):
        return False


def hanging(folder: Path, *, ignore_term: bool = False) -> str:
    """The body of a plugin that never ends, and has a child that does not either."""
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if ignore_term else ""
    return f"""
import os, signal, sys
{ignore}
child = os.fork()
name = "grandchild" if child == 0 else "child"
with open({str(folder)!r} + "/writing-" + name, "w") as file:
    file.write(str(os.getpid()))
os.rename({str(folder)!r} + "/writing-" + name, {str(folder)!r} + "/" + name)
print("still thinking about {SECRET}"[:14], file=sys.stderr, flush=True)
while True:
    signal.pause()
"""


async def both_run(folder: Path) -> None:
    """Wait until the hanging plugin and its child are there."""
    await until(
        lambda: is_running(folder / "child") and is_running(folder / "grandchild"),
        "the plugin and its child run",
    )


async def both_gone(folder: Path) -> None:
    """Wait until the system has taken both away; they were killed before."""
    await until(
        lambda: not is_running(folder / "child") and not is_running(folder / "grandchild"),
        "the plugin and its child are gone",
    )


async def test_a_token_is_read(write: Write) -> None:
    """The plain case, with an end."""
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    plugin = ExecPlugin(write(printing({"token": SECRET, "expirationTimestamp": ends.isoformat()})))

    credential = await plugin.fetch()

    assert Credential(token=SECRET, expires=ends) == credential
    assert SECRET not in repr(credential)


async def test_a_plugin_in_a_volume_of_a_pod_that_is_a_process_is_found(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path is the pod's, and the pod's volumes are below a folder."""
    (tmp_path / "plugins").mkdir()
    write(printing({"token": SECRET}), name="plugins/reader")
    monkeypatch.setenv("KNFLEET_POD_ROOT", str(tmp_path))

    assert (await ExecPlugin("/plugins/reader").fetch()).token == SECRET


async def test_a_certificate_is_read(write: Write) -> None:
    """A certificate with its key, in PEM; nulls are the same as nothing."""
    pair = Authority().client("somebody")
    status = {
        "clientCertificateData": pair.certificate.decode(),
        "clientKeyData": pair.key.decode(),
        "token": None,
        "expirationTimestamp": None,
    }

    credential = await ExecPlugin(write(printing(status))).fetch()

    assert (pair.certificate, pair.key) == (credential.client_certificate, credential.client_key)
    assert credential.token is None
    assert credential.expires is None


async def test_the_older_version_and_yaml_are_understood(write: Write) -> None:
    """kubectl accepts both."""
    text = f"apiVersion: {V1BETA1}\\nkind: ExecCredential\\nstatus:\\n  token: {SECRET}"
    plugin = ExecPlugin(write(f"print('{text}')"), api_version=V1BETA1)

    assert (await plugin.fetch()).token == SECRET


async def test_the_plugin_is_told_what_it_is_asked_for(write: Write, tmp_path: Path) -> None:
    """Arguments, additions to the environment, and the cluster as client-go describes it."""
    body = f"""
import json, os, sys
seen = {{"args": sys.argv[1:], "extra": os.environ["EXTRA"], "home": os.environ["HOME"],
        "info": json.loads(os.environ["KUBERNETES_EXEC_INFO"]), "stdin": sys.stdin.read(),
        "leader": os.getsid(0) == os.getpid()}}
json.dump(seen, open({str(tmp_path / "seen")!r}, "w"))
{printing({"token": "x"})}
"""
    cluster = ClusterInfo(
        server="https://127.0.0.1:6443",
        ca=b"PEM",
        proxy_url="http://127.0.0.1:3128",
        tls_server_name="api.test",
        insecure=True,
        config={"clusterName": "s1", "none": None},
    )
    plugin = ExecPlugin(
        write(body), args=("--for", "s1"), env=(("EXTRA", "1"), ("HOME", "/h")), cluster=cluster
    )

    await plugin.fetch()

    seen = json.loads((tmp_path / "seen").read_text())
    assert tuple(seen[name] for name in ("args", "extra", "home", "stdin")) == (
        ["--for", "s1"],
        "1",
        "/h",
        "",
    )
    assert seen["leader"] is True
    assert seen["info"] == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://127.0.0.1:6443",
                "tls-server-name": "api.test",
                "insecure-skip-tls-verify": True,
                "certificate-authority-data": base64.b64encode(b"PEM").decode(),
                "proxy-url": "http://127.0.0.1:3128",
                "config": {"clusterName": "s1", "none": None},
            },
        },
    }


async def test_a_plugin_is_found_in_path(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare name is looked up, but never in the current folder."""
    write(printing({"token": SECRET}), name="in-path")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert (await ExecPlugin("in-path").fetch()).token == SECRET

    monkeypatch.setenv("PATH", f".:{os.defpath}")
    monkeypatch.chdir(tmp_path)

    assert "is not in PATH" in await refusal(ExecPlugin("in-path"))


async def test_a_missing_plugin_is_named_with_its_hint(tmp_path: Path) -> None:
    """Escape codes in the hint do not reach a terminal."""
    hint = "Run:\n\x1b[1m  brew install it\x1b[0m"
    expected = "Its install hint: Run:; [1m  brew install it[0m"

    for command in ("no-such-plugin-anywhere", str(tmp_path / "gone")):
        assert (await refusal(ExecPlugin(command, install_hint=hint))).endswith(expected)


@pytest.mark.parametrize(
    ("body", "mode", "reason"),
    [
        ("#!/bin/sh\nexit 0\n", 0o644, "is not an executable file"),
        # libuv hands such a file to a shell, which does not understand it either.
        ("no binary, no script\n", 0o755, "nor a script with a #! line|failed with exit code 127"),
        ("#!/no/such/interpreter\n", 0o755, "interpreter in its #! line, is not there"),
    ],
)
async def test_what_cannot_be_started_says_why(
    tmp_path: Path, body: str, mode: int, reason: str
) -> None:
    """Each has another remedy."""
    path = tmp_path / "broken"
    path.write_text(body)
    path.chmod(mode)

    assert re.search(reason, await refusal(ExecPlugin(str(path))))


async def test_a_folder_is_no_plugin(tmp_path: Path) -> None:
    """It has the executable bit, but cannot be run."""
    assert "is not an executable file" in await refusal(ExecPlugin(str(tmp_path)))


async def test_an_environment_that_is_too_long_is_explained(write: Write) -> None:
    """The system's limit for one variable is 128 KiB, which a bundle can exceed."""
    cluster = ClusterInfo("https://127.0.0.1:1", ca=b"x" * 200_000)
    plugin = ExecPlugin(write(printing({"token": SECRET})), cluster=cluster)

    assert "too long" in await refusal(plugin)


async def test_a_plugin_that_fails_is_quoted_from_standard_error_only(write: Write) -> None:
    """The end of what it complained, without control characters; never what it printed."""
    body = f"""
import sys
print("{SECRET}")
print("x" * 5000 + "\\n\\x1b[31mlogin needed\\x1b[0m\\n  see the manual\\r\\n", file=sys.stderr)
sys.exit(3)
"""
    message = await refusal(ExecPlugin(write(body), args=(SECRET,), env=(("PASSWORD", SECRET),)))

    assert "failed with exit code 3: …xxx" in message
    assert message.endswith("; [31mlogin needed[0m; see the manual")
    assert len(message.partition("code 3: ")[2]) == 300


LEAKS = (
    f"POST /token?client_secret={SECRET} 401",
    f"Authorization: Bearer {SECRET}",
    f"using https://me:{SECRET}@host/path",
    f'got {{"password": "{SECRET}"}}',
)


@pytest.mark.parametrize(
    "ending", ["sys.exit(3)", "os.kill(os.getpid(), 9)", "time.sleep(600)", "print('y' * 2000000)"]
)
async def test_secrets_on_standard_error_stay_out_of_the_message(write: Write, ending: str) -> None:
    """However it ends; all that it wrote is in the debug log, and nowhere else."""
    text = "\n".join(LEAKS)
    body = f"import os, sys, time\nprint({text!r}, file=sys.stderr, flush=True)\n{ending}"
    with capture_logs() as lines:
        message = await refusal(ExecPlugin(write(body), timeout_seconds=2.0))

    assert message.count("<redacted>") == len(LEAKS)
    (logged,) = (each for each in lines if SECRET in str(each))
    assert logged["log_level"] == "debug"
    assert logged["text"].count(SECRET) == len(LEAKS)


async def test_a_plugin_ended_by_a_signal_says_which(write: Write) -> None:
    """As the kernel's memory guard would end it."""
    body = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"

    assert "was ended by signal 9" in await refusal(ExecPlugin(write(body)))


@pytest.mark.parametrize("ignore_term", [False, True])
async def test_a_plugin_that_hangs_is_killed_with_all_it_started(
    write: Write, tmp_path: Path, ignore_term: bool
) -> None:
    """The whole group ends, and the message has the last complaint."""
    body = hanging(tmp_path, ignore_term=ignore_term)
    plugin = ExecPlugin(write(body), timeout_seconds=1.5)

    message = await refusal(plugin)

    assert "did not answer within 1.5 s and was stopped: still thinking" in message
    assert (tmp_path / "grandchild").exists()
    await both_gone(tmp_path)


async def test_a_cancelled_fetch_kills_the_group(write: Write, tmp_path: Path) -> None:
    """Nobody waits: the plugin ends with its child before the task does."""
    task = asyncio.create_task(ExecPlugin(write(hanging(tmp_path))).fetch())
    await both_run(tmp_path)

    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE_SECONDS)

    assert task.cancelled()
    await both_gone(tmp_path)


async def test_a_fetch_cancelled_at_its_beginning_leaves_nothing(
    write: Write, tmp_path: Path
) -> None:
    """The program may be starting at that moment; the fixture looks for what is left."""
    plugin = ExecPlugin(write(hanging(tmp_path)))
    for turns in range(6):
        task = asyncio.create_task(plugin.fetch())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE_SECONDS)
        assert task.cancelled()


async def test_what_a_plugin_leaves_running_is_ended(write: Write, tmp_path: Path) -> None:
    """A child that keeps the pipe open holds nobody up, and does not outlive the plugin."""
    body = f"""
import os, signal
if os.fork() == 0:
    with open({str(tmp_path / "grandchild")!r}, "w") as file:
        file.write(str(os.getpid()))
    while True:
        signal.pause()
while not os.path.exists({str(tmp_path / "grandchild")!r}):
    pass
{printing({"token": SECRET})}
"""
    credential = await ExecPlugin(write(body)).fetch()

    assert credential.token == SECRET
    await until(lambda: not is_running(tmp_path / "grandchild"), "the child is gone")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_plugin_that_prints_without_end_is_stopped(write: Write, stream: str) -> None:
    """A megabyte is the limit, on both streams together."""
    body = f"import sys\nwhile True: sys.{stream}.write('y' * 65536)"

    assert "printed more than 1024 KiB and was stopped" in await refusal(ExecPlugin(write(body)))


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("", "printed nothing"),
        (f"<html>{SECRET}: [", "neither JSON nor YAML"),
        (f"*{SECRET}", "neither JSON nor YAML"),
        (f'{{"{SECRET}": 1, "{SECRET}": 2}}', "neither JSON nor YAML"),
        (SECRET, "not an ExecCredential"),
        (f'["{SECRET}"]', "not an ExecCredential"),
        (f'{{"kind": "{SECRET}"}}', "not an ExecCredential"),
        (f'{{"kind": "ExecCredential", "apiVersion": "{SECRET}"}}', "printed another apiVersion"),
        (f'{{"kind": "ExecCredential", "apiVersion": "{V1}"}}', "without a status"),
        (
            f'{{"kind": "ExecCredential", "apiVersion": "{V1}", "status": ["{SECRET}"]}}',
            "Expected `object | null`, got `array`",
        ),
    ],
)
async def test_garbage_is_refused_without_being_quoted(
    write: Write, printed: str, reason: str
) -> None:
    """It may hold a token all the same."""
    assert reason in await refusal(ExecPlugin(write(f"print({printed!r})")))


async def test_another_version_than_asked_for_is_refused(write: Write) -> None:
    """As client-go does."""
    plugin = ExecPlugin(write(printing({"token": SECRET}, api_version=V1BETA1)))

    message = await refusal(plugin)

    assert f"printed {V1BETA1}, but is configured for {V1}" in message


async def test_a_version_that_we_do_not_speak_is_refused_before_the_plugin_runs() -> None:
    """The oldest version is gone from Kubernetes too."""
    plugin = ExecPlugin("no-such-plugin", api_version="client.authentication.k8s.io/v1alpha1")

    assert f"v1alpha1 is not supported; use {V1} or {V1BETA1}" in await refusal(plugin)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({}, "neither a token nor a certificate"),
        ({"token": ""}, "neither a token nor a certificate"),
        ({"token": f"{SECRET} {SECRET}"}, "characters that no bearer token has"),
        ({"token": [SECRET]}, r"Expected `str`, got `array` - at `$.status.token`"),
        ({"clientCertificateData": SECRET}, "certificate without its key"),
        ({"clientKeyData": SECRET}, "key without certificate"),
        ({"clientCertificateData": SECRET, "clientKeyData": SECRET}, "not a PEM certificate"),
        ({"token": SECRET, "expirationTimestamp": "soon"}, "$.status.expirationTimestamp"),
        ({"token": SECRET, "expirationTimestamp": "2099-01-01T00:00:00"}, "expirationTimestamp"),
        (
            {"token": SECRET, "expirationTimestamp": "2001-02-03T04:05:06+01:00"},
            "ended at 2001-02-03T03:05:06+00:00",
        ),
    ],
)
async def test_a_credential_that_cannot_be_used_is_refused(
    write: Write, status: dict[str, Any], reason: str
) -> None:
    """The field and the fault are named, the value is not."""
    assert reason in await refusal(ExecPlugin(write(printing(status))))


async def test_a_key_of_another_certificate_is_refused(write: Write) -> None:
    """Otherwise the handshake fails later, with a message that nobody understands."""
    authority = Authority()
    status = {
        "clientCertificateData": authority.client("one").certificate.decode(),
        "clientKeyData": authority.client("two").key.decode(),
    }

    assert "does not belong" in await refusal(ExecPlugin(write(printing(status))))


def counting(folder: Path, body: str) -> str:
    """A plugin that also counts how often it ran."""
    return f"""
import os
os.close(os.open({str(folder)!r} + "/run-" + str(os.getpid()), os.O_CREAT))
{body}
"""


def runs(folder: Path) -> int:
    """How often a counting plugin ran."""
    return len(list(folder.glob("run-*")))


async def test_fifty_requests_run_the_plugin_once(write: Write, tmp_path: Path) -> None:
    """All get the same credential; later ones get it without a run."""
    login = CachedCredential(ExecPlugin(write(counting(tmp_path, printing({"token": SECRET})))))

    credentials = await asyncio.gather(*(login.current() for _ in range(50)))
    again = await login.current()

    assert all(credential is again for credential in credentials)
    assert runs(tmp_path) == 1


async def test_an_expired_credential_is_replaced_once(write: Write, tmp_path: Path) -> None:
    """The end comes nearer than the skew: fifty requests cause one more run."""
    ends = datetime.now(UTC) + timedelta(hours=1)
    status = {"token": SECRET, "expirationTimestamp": ends.isoformat()}
    moment = datetime.now(UTC)
    login = CachedCredential(
        ExecPlugin(write(counting(tmp_path, printing(status)))), now=lambda: moment
    )
    await login.current()

    moment = ends - timedelta(seconds=29)
    await asyncio.gather(*(login.current() for _ in range(50)))

    assert runs(tmp_path) == 2


async def test_a_failing_plugin_is_not_run_for_every_request(write: Write, tmp_path: Path) -> None:
    """The failure is told to each of a hundred requests, from one run."""
    login = CachedCredential(ExecPlugin(write(counting(tmp_path, "raise SystemExit(4)"))))

    first = await asyncio.gather(*(login.current() for _ in range(50)), return_exceptions=True)
    later = await asyncio.gather(*(login.current() for _ in range(50)), return_exceptions=True)

    assert all(isinstance(e, CredentialError) and "exit code 4" in str(e) for e in first + later)
    assert len({id(error) for error in first}) == 50
    assert runs(tmp_path) == 1


async def test_waiters_that_leave_do_not_end_the_refresh_of_others(
    write: Write, tmp_path: Path
) -> None:
    """One of three stays, and gets its credential from the run that is under way."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    body = counting(tmp_path, f"open({str(gate)!r}).read()\n{printing({'token': SECRET})}")
    login = CachedCredential(ExecPlugin(write(body)))
    tasks = [asyncio.create_task(login.current()) for _ in range(3)]
    await until(lambda: runs(tmp_path) == 1, "the plugin runs")

    tasks[0].cancel()
    tasks[1].cancel()
    await asyncio.wait(tasks[:2], timeout=PATIENCE_SECONDS)
    await asyncio.to_thread(gate.write_text, "go")
    async with asyncio.timeout(PATIENCE_SECONDS):
        credential = await tasks[2]

    assert credential.token == SECRET
    assert tasks[0].cancelled()
    assert tasks[1].cancelled()
    assert runs(tmp_path) == 1


async def test_the_last_waiter_that_leaves_ends_the_plugin(write: Write, tmp_path: Path) -> None:
    """Nobody is left to want the credential; a later request starts a new run."""
    login = CachedCredential(ExecPlugin(write(hanging(tmp_path))))
    tasks = [asyncio.create_task(login.current()) for _ in range(3)]
    await both_run(tmp_path)

    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)

    assert all(task.cancelled() for task in tasks)
    await both_gone(tmp_path)
    write(printing({"token": SECRET}))
    assert (await login.current()).token == SECRET


async def test_many_plugins_at_once_leave_nothing(write: Write) -> None:
    """Good, failing and hanging ones side by side; the fixture counts what is left."""
    bodies = [printing({"token": SECRET}), "raise SystemExit(1)", "import signal; signal.pause()"]
    commands = [write(body, name=f"plugin-{n}") for n, body in enumerate(bodies)]
    plugins = [ExecPlugin(command, timeout_seconds=3) for command in commands * 5]

    async with asyncio.timeout(PATIENCE_SECONDS):
        outcomes = await asyncio.gather(*(p.fetch() for p in plugins), return_exceptions=True)

    assert sum(isinstance(outcome, Credential) for outcome in outcomes) == 5
    assert sum(isinstance(outcome, CredentialError) for outcome in outcomes) == 10


def test_nothing_secret_is_in_a_plugins_repr() -> None:
    """Values are printed in logs and by debuggers."""
    cluster = ClusterInfo("https://127.0.0.1:1", config={"secret": SECRET})
    plugin = ExecPlugin("p", args=(SECRET,), env=(("A", SECRET),), cluster=cluster)

    assert SECRET not in repr(plugin)
    assert SECRET not in str(plugin.__rich_repr__())
    assert SECRET not in str(cluster.__rich_repr__())
