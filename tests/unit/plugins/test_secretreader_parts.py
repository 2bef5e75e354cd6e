"""What credential plugins are asked and what they answer, without a cluster."""

import base64
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from knfleet.plugins import hub_api, permission
from knfleet.plugins.execcredential import (
    PluginError,
    PluginRequest,
    answer,
    asked,
    end_of,
    with_token,
)
from knfleet.plugins.kubeconfig_secretreader import load, status_of, user_of
from testbed.fakes.certificates import Authority

V1 = "client.authentication.k8s.io/v1"
HEAVY = ("aiohttp", "asyncio", "click", "cryptography", "msgspec", "psutil", "yaml")


def info(**spec: Any) -> dict[str, str]:
    """The environment of a plugin that is asked."""
    document = {"apiVersion": V1, "kind": "ExecCredential", "spec": spec}
    return {"KUBERNETES_EXEC_INFO": json.dumps(document)}


def token(**claims: Any) -> str:
    """An unsigned JWT."""
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    encoded = [base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "signature"])


def test_a_plugin_imports_nothing_that_is_slow() -> None:
    """It is started for every login; what it needs beyond the standard library is imported late."""
    script = (
        "import sys, knfleet.plugins.secretreader, knfleet.plugins.kubeconfig_secretreader;"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    answered = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert answered.stdout.strip() == "[]"


def test_the_answer_has_the_version_that_was_asked_for() -> None:
    """Callers refuse another one."""
    environ = info(cluster={"server": "https://s.test", "config": {"clusterName": "s1"}})
    environ["KUBERNETES_EXEC_INFO"] = environ["KUBERNETES_EXEC_INFO"].replace("/v1", "/v1beta1")

    question = asked(environ)

    assert question.text("clusterName") == "s1"
    assert json.loads(answer(question, {"token": "t"})) == {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "kind": "ExecCredential",
        "status": {"token": "t"},
    }


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "KUBERNETES_EXEC_INFO is not set"),
        ({"KUBERNETES_EXEC_INFO": "{"}, "is not JSON"),
        ({"KUBERNETES_EXEC_INFO": "[]"}, "is no ExecCredential"),
        (info(), "set provideClusterInfo: true"),
        (info(cluster={"server": "x", "config": []}), "has to be an object"),
    ],
)
def test_a_question_that_makes_no_sense_is_told(environ: dict[str, str], words: str) -> None:
    """With what to do about it."""
    with pytest.raises(PluginError, match=words):
        asked(environ)


@pytest.mark.parametrize(
    ("config", "words"),
    [({}, "missing clusterName"), ({"clusterName": 3}, "clusterName .* has to be a string")],
)
def test_a_field_that_is_missing_or_wrong_is_named(config: dict[str, Any], words: str) -> None:
    """The Secret's name has to be there, and a text."""
    question = asked(info(cluster={"server": "x", "config": config}))

    with pytest.raises(PluginError, match=words):
        question.text("clusterName", required=True)


@pytest.mark.parametrize(
    ("listed", "named", "found"),
    [
        ("", "", ["team-a"]),
        ("", "team-a", ["team-a"]),
        ("operator", "", ["team-a", "operator"]),
        ("other, operator", "other", ["other"]),
        ("*", "kube-system", ["kube-system"]),
        ("other", "operator", []),
        ("", "operator", []),
        (",", "operator", []),
    ],
)
def test_secrets_of_other_namespaces_are_read_where_the_environment_lists_them(
    listed: str, named: str, found: list[str]
) -> None:
    """The profile's own namespace comes first; a refusal says what to do."""
    question = PluginRequest(V1, {"namespace": named}, ("team-a", "cluster1"))
    environ = {permission.VARIABLE: listed}

    if found:
        assert [*permission.namespaces(question, environ, "operator")] == found
        return
    with pytest.raises(PluginError, match="list operator in KNFLEET_SECRET_NAMESPACES"):
        permission.namespaces(question, environ, "operator")


def test_a_token_tells_its_own_end() -> None:
    """So that callers ask again in time, and not after a request was refused."""
    end = int(time.time()) + 600

    status = with_token(token(exp=end), "secret a/b")

    assert status["expirationTimestamp"] == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end))


@pytest.mark.parametrize(
    "text",
    ["opaque", "a.b.c", token(), token(exp="soon"), token(exp=True), token(exp=1e300), "é.é.é"],
)
def test_a_token_that_tells_no_end_has_none(text: str) -> None:
    """Nothing is guessed."""
    assert end_of(text) is None


def test_a_token_that_has_ended_is_not_handed_out() -> None:
    """The message says where it is, never what it is."""
    text = token(exp=1000)

    with pytest.raises(PluginError, match="secret a/b holds a token that ended at 1970") as caught:
        with_token(text, "secret a/b")
    assert text not in str(caught.value)


@pytest.mark.parametrize("text", ["two words", "tab\tbed", "ümlaut"])
def test_what_cannot_be_a_token_is_refused(text: str) -> None:
    """A file with more than the token in it would break the request's header."""
    with pytest.raises(PluginError, match="no bearer token has"):
        with_token(text, "secret a/b")


def kubeconfig(user: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A kubeconfig with one user."""
    return {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "me"}}],
        "users": [{"name": "me", "user": user}],
    } | fields


def test_a_users_token_and_certificate_are_both_handed_out() -> None:
    """As the reference plugin does it."""
    pair = Authority().client("me")
    user = {
        "token": "t",
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }

    found = status_of(user_of(kubeconfig(user), "", "secret a/b"), "secret a/b")

    assert found == {
        "token": "t",
        "clientCertificateData": pair.certificate.decode(),
        "clientKeyData": pair.key.decode(),
    }


def test_a_kubeconfig_is_json_or_yaml() -> None:
    """Both are written by tools."""
    text = "users: [{name: me, user: {token: t}}]"

    assert load(text, "x") == load(
        json.dumps({"users": [{"name": "me", "user": {"token": "t"}}]}), "x"
    )


@pytest.mark.parametrize("text", ["{", "just words", "- a", "a: b: c", "", "\x00"])
def test_what_is_no_kubeconfig_is_not_quoted(text: str) -> None:
    """A Secret's content is a secret even when it makes no sense."""
    with pytest.raises(PluginError, match="failed to parse kubeconfig from secret a/b: it is not"):
        load(text, "secret a/b")


@pytest.mark.parametrize(
    ("config", "context", "words"),
    [
        (kubeconfig({}, **{"current-context": ""}), "", "no context specified"),
        (kubeconfig({}), "there", 'context "there" not found'),
        (kubeconfig({}, users=[]), "", 'user "me" not found'),
        (kubeconfig({}), "", "no authentication method"),
        (kubeconfig({"exec": {"command": "x"}}), "", "programs are not supported"),
        (kubeconfig({"tokenFile": "/etc/passwd"}), "", "tokenFile file path is not supported"),
        (kubeconfig({"client-certificate": "/x"}), "", "use client-certificate-data"),
        (kubeconfig({"client-key-data": "eA=="}), "", "no client-certificate-data"),
        (kubeconfig({"client-certificate-data": "eA=="}), "", "no client-key-data"),
        (kubeconfig({"client-key-data": "?"}), "", "client-key-data is not base64"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_told(
    config: dict[str, Any], context: str, words: str
) -> None:
    """With the field, and what would be right."""
    with pytest.raises(PluginError, match=words):
        status_of(user_of(config, context, "secret a/b"), "secret a/b")


def test_the_hub_may_be_another_context_than_the_current_one(tmp_path: Path) -> None:
    """A command with --context tells the plugins that it runs."""
    names = ("one", "two")
    config = {
        "current-context": "one",
        "clusters": [
            {"name": name, "cluster": {"server": f"https://{name}.example"}} for name in names
        ],
        "users": [{"name": name, "user": {"token": f"token-{name}"}} for name in names],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in names],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    environ = {"KUBECONFIG": str(tmp_path / "config")}

    assert hub_api.find(environ).server == "https://one.example"
    assert hub_api.find(environ | {hub_api.CONTEXT_VARIABLE: "two"}).server == "https://two.example"
