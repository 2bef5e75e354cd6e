"""Valid input of each kind, from which fuzzing begins."""

import base64
import json
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

from knfleet.api.meta import Object
from knfleet.cloudevents import cloud_event, work_events
from knfleet.cloudevents.cloud_event import CloudEvent, Subscription
from knfleet.kube import yaml
from knfleet.runtime.mux.frames import Frame, Kind, encode
from testbed.fakes.certificates import Authority
from tests.fuzz.targets import CLUSTER, SECRET

V1 = "client.authentication.k8s.io/v1"

ALTERNATIVE_NAMES = (b"\x30\x03\x82\x01a", b"\x30\x02\xa3\x00", b"\x30\x02\xa5\x00")
"""A DNS name, an address of X.400, the name of a party of EDI."""


@cache
def seeds(target: str) -> tuple[bytes, ...]:
    """Valid input of one kind."""
    return tuple(SEEDS[target]())


def kubeconfigs() -> list[bytes]:
    """With a token, with a certificate, with what is not allowed."""
    ca = base64.b64encode(Authority().pem).decode()
    users: list[Object] = [
        {"token": SECRET},
        {"username": "u", "password": SECRET},
        {"exec": {"apiVersion": V1, "command": "x", "env": [{"name": "A", "value": SECRET}]}},
        {"client-certificate-data": ca, "client-key-data": ca},
        {"tokenFile": "/token"},
    ]
    written: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "one",
            "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": "https://127.0.0.1:6443",
                        "certificate-authority-data": ca,
                        "proxy-url": f"http://u:{SECRET}@127.0.0.1:1",
                    },
                }
            ],
            "users": [{"name": "u", "user": user}],
        }
        for user in users
    ]
    return [yaml.dump_all([each]).encode() for each in written] + [json.dumps(written[0]).encode()]


def manifests() -> list[bytes]:
    """Anchors, merges, blocks, tags, several documents."""
    return [
        b"a: &x {b: 1, c: [2, 0x1F, .5, 1e3, ~, yes, 2001-01-01]}\nd: {<<: *x, b: 2}\n",
        b"a: |\n  text\n  more\nb: >-\n  folded\n  text\n---\nc: 'quoted'\nd: \"\\u00e9\\n\"\n",
        b"- !!str 1\n- !!int '2'\n- ? key\n  : value\n",
        b'{"a": [1, 2.5, true, null, "x"]} {"b": {}}',
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: v\n...\n",
    ]


def credentials() -> list[bytes]:
    """With a token, with a certificate, in YAML."""
    ends = "2999-01-01T00:00:00Z"
    status: list[Object] = [
        {"token": SECRET, "expirationTimestamp": ends},
        {"clientCertificateData": f"-----{SECRET}", "clientKeyData": SECRET},
    ]
    printed = [{"apiVersion": V1, "kind": "ExecCredential", "status": each} for each in status]
    return [json.dumps(each).encode() for each in printed] + [yaml.dump_all(printed[:1]).encode()]


def certificate_requests() -> list[bytes]:
    """An agent's, one with a name too many, and some with alternative names."""
    key = ec.generate_private_key(ec.SECP256R1())
    organizations = (
        f"system:open-cluster-management:{CLUSTER}",
        "system:open-cluster-management:managed-clusters",
    )
    found: list[bytes] = []
    for extra in ([], [x509.NameAttribute(NameOID.COUNTRY_NAME, "DE")]):
        name = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations),
                x509.NameAttribute(
                    NameOID.COMMON_NAME, f"system:open-cluster-management:{CLUSTER}:agent"
                ),
                *extra,
            ]
        )
        builder = x509.CertificateSigningRequestBuilder().subject_name(name)
        request = builder.sign(key, hashes.SHA256())
        found.append(request.public_bytes(serialization.Encoding.PEM))
    return found + [named_request(key, each) for each in ALTERNATIVE_NAMES]


def named_request(key: ec.EllipticCurvePrivateKey, names: bytes) -> bytes:
    """A request with alternative names, as they are encoded."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    extension = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, names)
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .add_extension(extension, critical=False)
        .sign(key, hashes.SHA256())
    )
    return request.public_bytes(serialization.Encoding.PEM)


def api_answers() -> list[bytes]:
    """An object, a failure, events of a watch."""
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"k": "v"},
    }
    status = {
        "kind": "Status",
        "code": 409,
        "reason": "Conflict",
        "message": "m",
        "details": {"causes": [{"field": "f", "message": "m"}], "retryAfterSeconds": 1},
    }
    found: list[Object] = [manifest, status]
    found += [{"type": "ADDED", "object": manifest}, {"type": "ERROR", "object": status}]
    return [json.dumps(each).encode() for each in found]


def frames() -> list[bytes]:
    """The life of a stream."""
    sent = [
        Frame(Kind.HELLO, 0, b"{}"),
        Frame(Kind.OPEN, 1, b"api"),
        Frame(Kind.ACCEPT, 1),
        Frame(Kind.DATA, 1, b"data" * 20),
        Frame(Kind.WINDOW, 1, b"\0\0\1\0"),
        Frame(Kind.END, 1),
        Frame(Kind.RESET, 1, b"\0gone"),
        Frame(Kind.PING, 0, b"12345678"),
        Frame(Kind.GOAWAY, 0, b"\1new"),
    ]
    return [b"".join(map(encode, sent)), *map(encode, sent)]


def events() -> list[bytes]:
    """A work, its status, a subscription."""
    meta: Object = {"name": "w", "namespace": CLUSTER, "uid": "u", "generation": 2}
    work: Object = {"metadata": meta, "spec": {"workload": {"manifests": [{"kind": "X"}]}}}
    status: Object = {"conditions": [{"type": "Applied", "status": "True"}]}
    made: list[CloudEvent] = [
        work_events.bundle_event("create_request", work, source="hub"),
        work_events.status_event(meta, status, source="a", original="b", sequence="1"),
    ]
    wanted = Subscription(
        "agent", CLUSTER, "io.open-cluster-management.works.v1alpha1.manifestbundles"
    )
    return [
        *map(cloud_event.event_bytes, made),
        *map(cloud_event.publish_bytes, made),
        cloud_event.subscription_bytes(wanted),
    ]


def forms() -> list[bytes]:
    """Both ways in which browsers send them; the first byte chooses the header."""
    part = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    encoded = part.replace(b"\r\n\r\n", b"\r\nContent-Transfer-Encoding: %s\r\n\r\n", 1)
    return [
        b"\0csrf=right&version=1.22.1&token=abc.def",
        b"\1" + part % (b"csrf", b"right") + part % (b"version", b"1.22.1") + b"--b--\r\n",
        b"\1" + encoded % (b"csrf", b"base64", b"cmlnaHQ=") + b"--b--\r\n",
        b"\1" + encoded % (b"csrf", b"nonsense", b"right") + b"--b--\r\n",
        b"\2csrf=%ed%a0%80&version=%00",
        b"/cr/knativeserving/knative-serving/knative?page=2",
        b"/cluster/a%2fb?q=x",
    ]


SEEDS = {
    "kubeconfig": kubeconfigs,
    "yaml": manifests,
    "exec-credential": credentials,
    "csr": certificate_requests,
    "api-answers": api_answers,
    "frames": frames,
    "cloudevents": events,
    "forms": forms,
}
