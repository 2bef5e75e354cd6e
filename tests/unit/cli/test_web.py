"""`knfleet web`: what the flags mean, and what they refuse in a sentence."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from knfleet.cli.main import knfleet
from knfleet.cli.process.web import write_url
from knfleet.kube.yaml import dump_all
from testbed.fakes.sockets import loopback_socket


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A file that leads nowhere."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "hub",
        "contexts": [{"name": "hub", "context": {"cluster": "hub"}}],
        "clusters": [{"name": "hub", "cluster": {"server": "https://127.0.0.1:1"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(dump_all([config]))
    return path


def web(kubeconfig: Path, *flags: str) -> Result:
    """Type the command."""
    return CliRunner().invoke(knfleet, ["web", "--kubeconfig", str(kubeconfig), *flags])


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--address", "0.0.0.0"), "tokens would travel unencrypted"),
        (("--address", "127.0.0.1:http"), "write HOST:PORT"),
        (("--tls-cert-file", "cert.pem"), "name both files"),
        (("--releases", "/nowhere/at/all"), "/nowhere/at/all"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_sentence(
    kubeconfig: Path, flags: tuple[str, ...], problem: str
) -> None:
    """Exit code 1, and what to do."""
    answer = web(kubeconfig, *flags)

    assert answer.exit_code == 1
    assert problem in answer.output
    assert answer.output.startswith("Error: ")


def test_a_port_that_is_taken_is_told_in_a_sentence(kubeconfig: Path) -> None:
    """Before anything is started."""
    with loopback_socket() as taken:
        answer = web(kubeconfig, "--address", f":{taken.getsockname()[1]}")

    assert answer.exit_code == 1
    assert "choose another port" in answer.output


@pytest.mark.parametrize(
    ("pod_ip", "host"), [("10.0.0.7", "0.0.0.0"), ("fd00::7", "::"), ("", "0.0.0.0")]
)
def test_a_port_alone_is_listened_on_at_all_addresses_of_a_pod(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, pod_ip: str, host: str
) -> None:
    """As `kubectl port-forward` comes to loopback; others reach it too, so TLS is required."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("POD_IP", pod_ip)
    monkeypatch.delenv("KNFLEET_BIND_ADDRESS", raising=False)

    answer = web(kubeconfig, "--address", ":8787", "--login")

    assert answer.exit_code == 1
    assert f"Error: {host} can be reached from outside, and tokens would travel" in answer.output


def test_the_address_in_a_file_is_for_its_owner_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It holds the key, so it is printed only when no file is named."""
    path = tmp_path / "url"

    write_url(path, "http://127.0.0.1:1/enter?key=secret")
    assert "secret" not in capsys.readouterr().out
    assert path.read_text() == "http://127.0.0.1:1/enter?key=secret\n"
    assert path.stat().st_mode & 0o777 == 0o600

    write_url(None, "http://127.0.0.1:1/enter?key=secret")
    assert "secret" in capsys.readouterr().out
