"""A pod finds its own cluster, and says what is missing when it does not."""

from pathlib import Path

import pytest

from knfleet.api.meta import HUB
from knfleet.kube.auth.credentials import TokenFile
from knfleet.kube.auth.in_cluster import default_connection, in_cluster
from knfleet.kube.errors import ConfigError
from testbed.fakes.certificates import Authority

CA = Authority().pem
FOLDER = "var/run/secrets/kubernetes.io/serviceaccount"
KUBECONFIG = """
current-context: one
contexts: [{name: one, context: {cluster: c}}, {name: two, context: {cluster: d}}]
clusters: [{name: c, cluster: {server: https://c.test}}, {name: d, cluster: {server: https://d.test}}]
"""


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The service account folder of a pod, whose volumes are below a folder of ours."""
    folder = tmp_path / "pod" / FOLDER
    folder.mkdir(parents=True)
    (folder / "token").write_text("t0ken\n")
    (folder / "ca.crt").write_bytes(CA)
    (folder / "namespace").write_text("knfleet\n")
    monkeypatch.setenv("KNFLEET_POD_ROOT", str(tmp_path / "pod"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return folder


async def test_a_pod_connects_as_its_service_account(pod: Path) -> None:
    """Address, CA, namespace, and a token that is read again."""
    connection = in_cluster()

    assert (connection.cluster, connection.namespace) == (HUB, "knfleet")
    assert connection.endpoint.server == "https://10.96.0.1:443"
    assert CA.strip() == (connection.endpoint.ca or b"").strip()
    assert TokenFile(pod / "token") == connection.credentials
    (pod / "token").write_text("newer")
    assert (await connection.credentials.fetch()).token == "newer"


@pytest.mark.parametrize(
    ("host", "url"),
    [("fd00::1", "https://[fd00::1]:443"), ("api.test", "https://api.test:443")],
)
def test_an_address_of_version_six_is_put_in_brackets(
    pod: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    """Other hosts are not."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)

    assert url == in_cluster().endpoint.server


def test_without_a_namespace_file_it_is_default(pod: Path) -> None:
    """Some pods mount a token only."""
    (pod / "namespace").unlink()

    assert in_cluster().namespace == "default"


@pytest.mark.parametrize("name", ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"])
def test_outside_of_a_cluster_the_missing_variable_is_named(
    pod: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One is as bad as both."""
    monkeypatch.delenv(name)

    with pytest.raises(ConfigError, match=f"not in a cluster: {name} not set"):
        in_cluster()


def test_a_port_has_to_be_one(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker-style links put an address there."""
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "tcp://10.0.0.1:443")

    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_PORT is not the number of a port"):
        in_cluster()


def test_a_missing_token_is_named_with_the_remedy(pod: Path) -> None:
    """The usual reason is a field of the pod."""
    (pod / "token").unlink()

    with pytest.raises(ConfigError, match=r"no token at .*automountServiceAccountToken") as caught:
        in_cluster()

    assert str(pod / "token") in str(caught.value)


def test_a_missing_or_broken_ca_is_named(pod: Path) -> None:
    """The machine's own trust store is no replacement."""
    (pod / "ca.crt").write_text("no PEM")
    with pytest.raises(ConfigError, match=r"no PEM certificate in .*ca\.crt"):
        in_cluster()

    (pod / "ca.crt").unlink()
    with pytest.raises(ConfigError, match=r"CA at .*ca\.crt cannot be read: No such file"):
        in_cluster()


def test_a_kubeconfig_that_is_there_comes_first(
    pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the hub's name that counts, whatever the context is called."""
    assert default_connection().endpoint.server == "https://10.96.0.1:443"
    (tmp_path / "config").write_text(KUBECONFIG)

    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    assert default_connection().endpoint.server == "https://c.test"
    assert (
        default_connection("two").endpoint.server,
        default_connection("two").cluster,
    ) == ("https://d.test", HUB)


def test_an_empty_or_missing_kubeconfig_does_not_count(
    pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in client-go; but a context that is asked for needs one."""
    for name in ("gone", "empty"):
        (tmp_path / "empty").touch()
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / name))
        assert default_connection().endpoint.server == "https://10.96.0.1:443"
        with pytest.raises(ConfigError, match="no kubeconfig"):
            default_connection("one")


def test_a_broken_kubeconfig_is_not_passed_over(
    pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Falling back to another cluster would be worse than any error."""
    (tmp_path / "config").write_text("{")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    with pytest.raises(ConfigError, match="config, line 2"):
        default_connection()


def test_with_neither_both_ways_are_named(
    pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message of somebody's first try."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")

    with pytest.raises(ConfigError) as caught:
        default_connection()

    message = str(caught.value)
    assert str(tmp_path / ".kube" / "config") in message
    assert "not in a cluster: KUBERNETES_SERVICE_HOST" in message
    assert message.endswith("set KUBECONFIG")
