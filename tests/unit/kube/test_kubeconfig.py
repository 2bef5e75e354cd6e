"""Kubeconfigs mean what they mean to kubectl, and every fault is named with its place."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knfleet.kube.auth import kubeconfig
from knfleet.kube.auth.credentials import (
    CertificatePair,
    CombinedCredential,
    Credential,
    StaticCredential,
    TokenFile,
)
from knfleet.kube.auth.exec_plugin import ClusterInfo, ExecPlugin
from knfleet.kube.auth.kubeconfig import Kubeconfig, connect, merge, parse
from knfleet.kube.auth.kubeconfig_entries import EntryOrigin
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import ConfigError
from knfleet.kube.yaml import dump_all
from testbed.fakes.certificates import Authority

SECRET = "s3cret-t0ken"
AUTHORITY = Authority()
CA = AUTHORITY.pem
SERVER = "https://127.0.0.1:6443"
V1 = "client.authentication.k8s.io/v1"


def encoded(data: bytes) -> str:
    """Base64, as kubeconfigs hold it."""
    return base64.b64encode(data).decode()


def config(
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A kubeconfig with one of each."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"} | (context or {})}],
        "clusters": [{"name": "c", "cluster": {"server": SERVER} | (cluster or {})}],
        "users": [{"name": "u", "user": user or {}}],
    }


def loaded(folder: Path, written: dict[str, Any], context: str | None = None) -> Connection:
    """The connection that a kubeconfig in a folder describes."""
    path = folder / "config"
    path.write_text(dump_all([written]))
    return kubeconfig.load([path], context)


def refusal(folder: Path, written: dict[str, Any], context: str | None = None) -> str:
    """The complaint about a kubeconfig, which names the file and shows no secret."""
    with pytest.raises(ConfigError) as caught:
        loaded(folder, written, context)
    message = str(caught.value)
    assert str(folder / "config") in message
    assert SECRET not in message
    return message


def test_everything_about_a_cluster_is_read(tmp_path: Path) -> None:
    """Inline CA, proxy, names, namespace; the query of a URL does not count."""
    cluster = {
        "server": f"{SERVER}/k8s/clusters/x/?a=b#c",
        "certificate-authority-data": encoded(b"# our own\n" + CA + b"\n\xff remarks"),
        "proxy-url": "http://proxy.test:3128",
        "tls-server-name": "api.test",
    }

    connection = loaded(tmp_path, config({"token": f" {SECRET}\n"}, cluster, {"namespace": "team"}))

    assert (connection.cluster, connection.namespace) == ("one", "team")
    endpoint = connection.endpoint
    assert f"{SERVER}/k8s/clusters/x" == endpoint.server
    assert CA.strip() == (endpoint.ca or b"").strip()
    assert (endpoint.proxy_url, endpoint.tls_server_name) == ("http://proxy.test:3128", "api.test")
    assert endpoint.insecure is False
    assert StaticCredential(Credential(token=SECRET)) == connection.credentials


def test_defaults(tmp_path: Path) -> None:
    """No user is nobody, and the namespace is `default`; nulls are the same as nothing."""
    written = config(cluster={"insecure-skip-tls-verify": True, "proxy-url": None})
    written["contexts"][0]["context"] = {"cluster": "c", "user": None, "namespace": None}
    written["users"] = None
    del written["kind"], written["apiVersion"]

    connection = loaded(tmp_path, written)

    assert StaticCredential() == connection.credentials
    assert connection.namespace == "default"
    assert connection.endpoint.insecure is True
    assert connection.endpoint.ca is None


async def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    """CA, certificate, key and token in a folder beside it; a token file wins over a token."""
    pair = AUTHORITY.client("u")
    (tmp_path / "pki").mkdir()
    for name, content in (("ca", CA), ("crt", pair.certificate), ("key", pair.key)):
        (tmp_path / "pki" / name).write_bytes(content)
    (tmp_path / "token").write_text(SECRET)
    user = {
        "client-certificate": "pki/crt",
        "client-key": str(tmp_path / "pki" / "key"),
        "tokenFile": "token",
        "token": "not this",
    }

    connection = loaded(tmp_path, config(user, {"certificate-authority": "pki/ca"}))

    pki = tmp_path / "pki"
    expected = CombinedCredential(
        TokenFile(tmp_path / "token"), CertificatePair(pki / "crt", pki / "key")
    )
    assert expected == connection.credentials
    assert CA.strip() == (connection.endpoint.ca or b"").strip()
    credential = await connection.credentials.fetch()
    assert (SECRET, pair.key) == (credential.token, credential.client_key)


def test_an_inline_certificate_is_read(tmp_path: Path) -> None:
    """Base64 of PEM, broken into lines or not."""
    pair = AUTHORITY.client("u")
    lines = encoded(pair.certificate)
    user = {
        "client-certificate-data": f"{lines[:64]}\n{lines[64:]}\n",
        "client-key-data": encoded(pair.key),
    }

    connection = loaded(tmp_path, config(user))

    assert CertificatePair(pair.certificate, pair.key) == connection.credentials


def test_an_exec_user_is_read(tmp_path: Path) -> None:
    """With the cluster as the plugin sees it, and its extension untouched."""
    extension = {"clusterName": "s1", "nothing": None}
    cluster = {
        "certificate-authority-data": encoded(CA),
        "extensions": [
            {"name": "other", "extension": 1},
            {"name": "client.authentication.k8s.io/exec", "extension": extension},
        ],
    }
    exec_ = {
        "apiVersion": V1,
        "command": "bin/plugin",
        "args": ["a"],
        "env": [{"name": "A", "value": "1"}],
        "installHint": "buy one",
        "provideClusterInfo": True,
        "interactiveMode": "IfAvailable",
    }

    connection = loaded(tmp_path, config({"exec": exec_}, cluster))

    ca = connection.endpoint.ca
    assert connection.credentials == ExecPlugin(
        command=str(tmp_path / "bin" / "plugin"),
        args=("a",),
        env=(("A", "1"),),
        api_version=V1,
        cluster=ClusterInfo(server=SERVER, ca=ca, config=extension),
        install_hint="buy one",
    )


def test_a_plugin_without_a_path_is_looked_up_later(tmp_path: Path) -> None:
    """The older version needs no interactive mode; without being asked, nothing is told."""
    exec_ = {"apiVersion": f"{V1}beta1", "command": "plugin", "args": None, "env": None}

    connection = loaded(tmp_path, config({"exec": exec_}))

    assert ExecPlugin("plugin", api_version=f"{V1}beta1") == connection.credentials


def test_a_token_counts_more_than_a_plugin(tmp_path: Path) -> None:
    """As in client-go."""
    exec_ = {"apiVersion": V1, "command": "p", "interactiveMode": "Never"}

    connection = loaded(tmp_path, config({"exec": exec_, "token": SECRET}))

    assert StaticCredential(Credential(token=SECRET)) == connection.credentials


def test_plain_http_is_for_this_machine_and_without_credentials(tmp_path: Path) -> None:
    """As with `kubectl proxy`."""
    for server in ("http://127.0.0.1:8001", "http://localhost:8001", "http://[::1]:8001"):
        connection = loaded(tmp_path, config({"token": SECRET}, {"server": server}))
        assert (server, StaticCredential()) == (connection.endpoint.server, connection.credentials)

    assert "use https://" in refusal(tmp_path, config(cluster={"server": "http://10.0.0.1"}))


FAULTS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"username": "u", "password": SECRET}, {}, "user 'u': username: .*use a token"),
    ({"password": SECRET}, {}, "user 'u': password: .*use a token"),
    ({"auth-provider": {"name": SECRET}}, {}, "user 'u': auth-provider: .*use an exec plugin"),
    ({"token": SECRET, "as": "root"}, {}, "user 'u': as: impersonation is not supported"),
    ({"token": SECRET, "as-groups": ["g"]}, {}, "user 'u': as-groups: impersonation"),
    ({"token": f"{SECRET} {SECRET}"}, {}, "user 'u': token: .*no bearer token"),
    ({"token": 5}, {}, "user 'u': Expected `str`, got `int` - at `\\$.token`"),
    ({"tokenFile": "gone"}, {}, "user 'u': tokenFile: .*gone cannot be read: No such file"),
    ({"client-key-data": SECRET + "!"}, {}, "user 'u': client-key-data: .* not base64"),
    ({"client-certificate-data": "aaaa"}, {}, "user 'u': client-key: .*no key; set both"),
    ({"client-key-data": "aaaa"}, {}, "user 'u': client-certificate: .*no certificate; set both"),
    ({"client-key-data": "aa==", "client-key": "k"}, {}, "client-key and client-key-data are both"),
    (
        {"client-certificate": "gone", "client-key-data": "aaaa"},
        {},
        "user 'u': client-certificate: .*gone cannot be read",
    ),
    ({"exec": {"apiVersion": V1}}, {}, "user 'u': exec.command: it is missing"),
    ({"exec": {"command": "p"}}, {}, "user 'u': exec.apiVersion: apiVersion is missing; use"),
    (
        {"exec": {"command": "p", "apiVersion": f"{V1}alpha1"}},
        {},
        "user 'u': exec.apiVersion: .*v1alpha1 is not supported; use .*/v1 or .*/v1beta1",
    ),
    ({"exec": {"command": "p", "apiVersion": V1}}, {}, "exec.interactiveMode: it is missing"),
    (
        {"exec": {"command": "p", "apiVersion": V1, "interactiveMode": "Always"}},
        {},
        "exec.interactiveMode: .*terminal",
    ),
    (
        {"exec": {"command": "p", "apiVersion": V1, "interactiveMode": "Sometimes"}},
        {},
        "exec.interactiveMode: it has to be one of Never, IfAvailable, Always",
    ),
    (
        {"exec": {"command": "p", "apiVersion": f"{V1}beta1", "env": [{"value": SECRET}]}},
        {},
        "exec.env: a variable has no name",
    ),
    ({"exec": [SECRET]}, {}, r"user 'u': Expected `object \| null`, got `array`"),
    ({}, {"server": ""}, "cluster 'c': server: it is missing"),
    ({}, {"server": "127.0.0.1:6443"}, "cluster 'c': server: it is not an https:// URL"),
    ({}, {"server": "ftp://x"}, "cluster 'c': server: it is not an https:// URL"),
    ({}, {"server": "https://"}, "cluster 'c': server: it is not an https:// URL"),
    ({}, {"server": "https://x:port"}, "cluster 'c': server: it is not an https:// URL"),
    ({}, {"server": "https://x y"}, "cluster 'c': server: it is not an https:// URL"),
    ({}, {"server": f"https://u:{SECRET}@x"}, "cluster 'c': server: it holds a user name"),
    ({}, {"proxy-url": f"socks5://{SECRET}@x:1"}, "cluster 'c': proxy-url: .*http:// or https://"),
    (
        {},
        {"certificate-authority-data": SECRET + "!"},
        "cluster 'c': certificate-authority-data: .*not base64",
    ),
    (
        {},
        {"certificate-authority-data": encoded(b"no PEM")},
        "cluster 'c': certificate-authority-data: there is no PEM certificate",
    ),
    (
        {},
        {"certificate-authority-data": encoded(CA[:200] + CA[240:])},
        "cluster 'c': certificate-authority-data: there is no PEM certificate",
    ),
    (
        {},
        {"certificate-authority": "gone.pem"},
        "cluster 'c': certificate-authority: .*gone.pem cannot be read",
    ),
    (
        {},
        {"certificate-authority": "ca", "certificate-authority-data": encoded(CA)},
        "certificate-authority and certificate-authority-data are both set; remove one",
    ),
    (
        {},
        {"certificate-authority-data": encoded(CA), "insecure-skip-tls-verify": True},
        "specifying a root certificates file with the insecure flag is not allowed",
    ),
    ({}, {"insecure-skip-tls-verify": "yes"}, "cluster 'c': Expected `bool`, got `str`"),
]


@pytest.mark.parametrize(("user", "cluster", "reason"), FAULTS)
def test_a_fault_is_named_with_file_entry_and_field(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], reason: str
) -> None:
    """The value, which may be a secret, is never shown."""
    message = refusal(tmp_path, config(user, cluster))

    assert re.search(reason, message), message


def test_a_missing_context_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    """Whether it was asked for, is the current one, or was never chosen."""
    written = config()
    written["contexts"].append({"name": "another", "context": {"cluster": "c"}})
    assert "context 'nope' does not exist; there are: another, one" in refusal(
        tmp_path, written, "nope"
    )

    written["current-context"] = "old"
    assert "current-context is 'old', which does not exist; there are: another, one" in refusal(
        tmp_path, written
    )
    written["current-context"] = None
    assert "current-context is not set; there are: another, one" in refusal(tmp_path, written)


def test_a_missing_cluster_or_user_is_refused(tmp_path: Path) -> None:
    """kubectl would go on as nobody; that only leads to a puzzling refusal later."""
    message = refusal(tmp_path, config(context={"cluster": "x"}))
    assert "context 'one': cluster: there is no cluster 'x'; there are: c" in message

    message = refusal(tmp_path, config(context={"user": "x"}))
    assert "context 'one': user: there is no user 'x'; there are: u" in message

    message = refusal(tmp_path, config(context={"cluster": ""}))
    assert "context 'one': cluster: it is missing; there are: c" in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [\n", "line 2.*; correct the file"),
        ("users: 1\nusers: 2\n", "line 2: the key 'users' is there twice"),
        ("kind: Pod\napiVersion: v1\n", "its kind has to be Config"),
        ("kind: Config\napiVersion: v2\n", "its apiVersion v1"),
        ("- a\n", "not a kubeconfig: a mapping is expected"),
        ("just text", "not a kubeconfig: a mapping is expected"),
        ("users: {a: b}", "users: a list is expected"),
        ("users: [a]", r"users\[0\]: a mapping with a name is expected"),
        ("users: [{user: {}}]", r"users\[0\]: a mapping with a name is expected"),
        ("users: [{name: a}, {name: a}]", r"users\[1\]: user 'a' is there twice"),
        ("current-context: [a]", "current-context: a string is expected"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """With the file, and the line where there is one."""
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(ConfigError, match=reason) as caught:
        kubeconfig.load([path])

    assert str(path) in str(caught.value)


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    """As with --kubeconfig."""
    with pytest.raises(ConfigError, match="gone cannot be read: No such file"):
        kubeconfig.load([tmp_path / "gone"])
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        kubeconfig.load([tmp_path])


def test_kubeconfig_lists_files_of_which_the_first_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing ones are skipped, empty names too; the first current context counts."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = config({"tokenFile": "token"})
    first["current-context"] = ""
    second = config({"token": "of the second"}, {"server": "https://second.test"})
    second["contexts"].append({"name": "two", "context": {"cluster": "c2", "user": "u2"}})
    second["clusters"].append({"name": "c2", "cluster": {"server": "https://two.test"}})
    second["users"].append({"name": "u2", "user": {"tokenFile": "token"}})
    second["current-context"] = "two"
    (tmp_path / "a" / "config").write_text(dump_all([first]))
    (tmp_path / "b" / "config").write_text(dump_all([second]))
    for folder in ("a", "b"):
        (tmp_path / folder / "token").write_text(folder)
    listed = f"{tmp_path}/gone::{tmp_path}/a/config:{tmp_path}/b/config:{tmp_path}/a/config"
    monkeypatch.setenv("KUBECONFIG", listed)

    one, two = kubeconfig.load(context="one"), kubeconfig.load()

    assert kubeconfig.contexts() == ["one", "two"]
    assert (SERVER, TokenFile(tmp_path / "a" / "token")) == (one.endpoint.server, one.credentials)
    assert two.cluster == "two"
    assert TokenFile(tmp_path / "b" / "token") == two.credentials


def test_one_broken_file_among_several_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with kubectl: what it says is not guessed."""
    (tmp_path / "good").write_text(dump_all([config()]))
    (tmp_path / "bad").write_text("{")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/good:{tmp_path}/bad")

    with pytest.raises(ConfigError, match="bad, line 2"):
        kubeconfig.load()


def test_without_kubeconfig_the_one_in_the_home_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty variable is the same as none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", "")
    with pytest.raises(ConfigError, match=r"nothing is configured in .*\.kube/config"):
        kubeconfig.load()

    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(dump_all([config()]))

    assert kubeconfig.load().cluster == "one"


def test_a_kubeconfig_from_elsewhere_names_nothing_on_this_machine() -> None:
    """Whoever may write a Secret must not read our files or run our programs."""
    good = config({"token": SECRET}, {"certificate-authority-data": encoded(CA)})
    connection = kubeconfig.from_text(dump_all([good]), source="secret team/kubeconfig")
    assert StaticCredential(Credential(token=SECRET)) == connection.credentials

    exec_ = {"apiVersion": V1, "command": "/bin/sh", "interactiveMode": "Never"}
    for user, cluster in (
        ({"tokenFile": "/etc/passwd"}, {}),
        ({"client-certificate": "/etc/passwd", "client-key": "/etc/passwd"}, {}),
        ({"exec": exec_}, {}),
        ({}, {"certificate-authority": "/etc/passwd"}),
    ):
        text = dump_all([config(user, cluster)]).encode()
        with pytest.raises(ConfigError, match=r"secret team/kubeconfig: .*must not be named here"):
            kubeconfig.from_text(text, source="secret team/kubeconfig")


NAMES = st.sampled_from(["a", "b", "c"])


@st.composite
def kubeconfigs(draw: st.DrawFn) -> Kubeconfig:
    """Kubeconfigs whose names meet, each from a file of its own."""
    source = draw(st.text("fgh", min_size=1, max_size=3))
    written: dict[str, Any] = {"current-context": draw(NAMES | st.just(""))}
    for kind in ("cluster", "user", "context"):
        names = draw(st.lists(NAMES, unique=True))
        written[f"{kind}s"] = [{"name": name, kind: {}} for name in names]
    return parse(dump_all([written]), EntryOrigin(source))


@settings(deadline=None, max_examples=50)
@given(st.lists(kubeconfigs(), max_size=4))
def test_in_a_merge_the_first_wins(configs: list[Kubeconfig]) -> None:
    """For each name, whole entries; for the current context, the first that sets it."""
    merged = merge(configs)

    for entries in ("clusters", "users", "contexts"):
        owners = [getattr(config, entries) for config in configs]
        for name, entry in getattr(merged, entries).items():
            assert entry is next(owner[name] for owner in owners if name in owner)
        assert set(getattr(merged, entries)) == {name for owner in owners for name in owner}
    chosen = [config.current_context for config in configs if config.current_context]
    assert (chosen or [""])[0] == merged.current_context


@settings(deadline=None, max_examples=50)
@given(kubeconfigs(), kubeconfigs(), kubeconfigs())
def test_merging_in_steps_is_merging_at_once(a: Kubeconfig, b: Kubeconfig, c: Kubeconfig) -> None:
    """So it does not matter who merges what."""
    assert merge([a, b, c]) == merge([merge([a, b]), c]) == merge([a, merge([b, c])])
    assert a == merge([a]) == merge([a, Kubeconfig()])


def test_no_secret_is_in_the_repr_of_a_kubeconfig() -> None:
    """Neither of the parsed text nor of the connection."""
    pair = AUTHORITY.client("u")
    user = {
        "token": SECRET,
        "client-key-data": encoded(pair.key),
        "client-certificate-data": encoded(pair.certificate),
    }
    parsed = parse(dump_all([config(user)]), EntryOrigin("f"))

    shown = repr(parsed) + repr(connect(parsed))

    assert SECRET not in shown
    assert encoded(pair.key) not in shown
    assert "PRIVATE" not in shown
