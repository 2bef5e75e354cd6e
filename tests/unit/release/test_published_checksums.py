"""What releases publish of their files: checksums, and signatures of them, from a real server."""

import base64
import datetime as dt
import hashlib
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct, structs

from knfleet.cli.main import knfleet
from knfleet.kube.yaml import dump_all
from knfleet.release.errors import NotAvailable, Tampered
from knfleet.release.signers import IDENTITY, ISSUER
from knfleet.release.source.project import ProjectReleases
from knfleet.release.source.published_checksums import checksums
from knfleet.release.source.pull import pull
from knfleet.release.source.signature_keys import pinned_keys
from tests.support.documents import Reader, surroundings
from tests.unit.release.test_downloads import serving as answering
from tests.unit.release.tree import config_map

START = dt.datetime(2026, 11, 19, tzinfo=dt.UTC)
MINUTES = dt.timedelta(minutes=10)
YEARS = dt.timedelta(days=3650)
USAGE, ALTERNATIVE_NAME = b"\x06\x03\x55\x1d\x25", b"\x06\x03\x55\x1d\x11"
"""Names of extensions, as a certificate has them."""
VERSION_3, VERSION_8 = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07"
OIDC_ISSUER = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")


def pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def signed(key: EllipticCurvePrivateKey, content: bytes) -> bytes:
    """What `cosign sign-blob` writes."""
    return base64.b64encode(key.sign(content, ECDSA(SHA256())))


class Authority(Struct, frozen=True):
    """Issues certificates of minutes, as Sigstore does."""

    key: EllipticCurvePrivateKey
    certificate: x509.Certificate

    def issue(
        self,
        key: EllipticCurvePrivateKey,
        *,
        identity: str | x509.GeneralName = IDENTITY,
        issuer: str = ISSUER,
        usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CODE_SIGNING,
        start: dt.datetime = START,
    ) -> bytes:
        """The certificate of a signer."""
        text = issuer.encode()
        value = bytes([0x0C, len(text)]) + text
        name = x509.RFC822Name(identity) if isinstance(identity, str) else identity
        builder = (
            x509.CertificateBuilder(self.certificate.subject, x509.Name([]), key.public_key())
            .serial_number(7)
            .not_valid_before(start)
            .not_valid_after(start + MINUTES)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.UnrecognizedExtension(OIDC_ISSUER, value), critical=False)
        )
        return builder.sign(self.key, SHA256()).public_bytes(Encoding.PEM)


def authority(
    name: str = "root", *, is_ca: bool = True, above: Authority | None = None
) -> Authority:
    """An authority, of another one if that is given."""
    key = generate_private_key(SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer = above.certificate.subject if above else subject
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key())
        .serial_number(3)
        .not_valid_before(START - YEARS)
        .not_valid_after(START + YEARS)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    return Authority(key, builder.sign(above.key if above else key, SHA256()))


def changed(certificate: bytes, old: bytes, new: bytes) -> bytes:
    """A certificate with other bytes of the same length."""
    der = x509.load_pem_x509_certificate(certificate).public_bytes(Encoding.DER)
    assert der.count(old) == 1
    content = base64.encodebytes(der.replace(old, new))
    return b"-----BEGIN CERTIFICATE-----\n" + content + b"-----END CERTIFICATE-----\n"


class Publisher(Struct, frozen=True):
    """Answers as the project's releases do; tests replace single answers."""

    sign: Callable[[bytes], dict[str, bytes]]
    """What it puts beside checksums.txt."""
    others: dict[str, bytes | None] = {}

    def content(self, path: str) -> bytes | None:
        """The file at an address; None where there is none."""
        if path in self.others:
            return self.others[path]
        folder, _, name = path.rpartition("/")
        if "/knative/" not in path and "net-kourier" not in path:
            return None
        if not name.startswith("checksums.txt"):
            return manifest(path)
        if "net-kourier" in path:
            return None
        names = FILES[folder.split("/")[2]]
        lines = (f"{digest(folder, each)}  {each}.yaml\n" for each in names)
        sums = "".join(lines).encode()
        beside = {"checksums.txt": sums, **self.sign(sums)}
        return beside.get(name)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        async def handler(request: web.Request) -> web.Response:
            content = self.content(request.path)
            if content is None:
                raise web.HTTPNotFound
            return web.Response(body=content, content_type="text/plain")

        async with answering(handler) as server:
            yield server


PAGE = Path(__file__).parents[3] / "docs" / "releases.md"
FILES = {
    "serving": ("serving-crds", "serving-core", "serving-hpa", "serving-post-install-jobs"),
    "eventing": (
        "eventing-crds", "eventing-core", "eventing-tls-networking", "in-memory-channel",
        "mt-channel-broker", "eventing-post-install",
    ),
}  # fmt: skip
SERVING = "/knative/serving/releases/download/knative-v1.23.0"


def manifest(name: str) -> bytes:
    """A file of a release."""
    return dump_all([config_map(name.rpartition("/")[2], version="1.23.0")]).encode()


def digest(folder: str, name: str) -> str:
    return hashlib.sha256(manifest(f"{folder}/{name}.yaml")).hexdigest()


def nothing(_: bytes) -> dict[str, bytes]:
    return {}


def by_key(key: EllipticCurvePrivateKey) -> Callable[[bytes], dict[str, bytes]]:
    return lambda content: {"checksums.txt.sig": signed(key, content)}


def by_certificate(
    key: EllipticCurvePrivateKey, certificate: bytes
) -> Callable[[bytes], dict[str, bytes]]:
    return lambda content: {
        "checksums.txt.sig": signed(key, content),
        "checksums.txt.pem": base64.b64encode(certificate),
    }


async def pulled(
    publisher: Publisher, folder: Path, *pinned: bytes, version: str = "1.23.0"
) -> Path:
    """Pull a release, with keys if some are pinned."""
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for number, content in enumerate(pinned):
        files.append(folder / f"pinned-{number}.pem")
        files[-1].write_bytes(content)
    keys = pinned_keys(tuple(files), IDENTITY, ISSUER)
    async with publisher.serving() as host:
        source = ProjectReleases((version,), folder / "cache", host=host)
        await pull(source, folder / "bundle", keys=keys)
    return folder / "bundle"


def verify(bundle: Path, *arguments: str) -> Result:
    return CliRunner().invoke(knfleet, ["bundle", "verify", "--dir", str(bundle), *arguments])


async def test_published_checksums_are_compared_and_explained(tmp_path: Path) -> None:
    """Also afterwards, without a network; a plugin that publishes none is named."""
    bundle = await pulled(Publisher(nothing), tmp_path)

    said = verify(bundle)

    assert said.exit_code == 0, said.output
    lines = said.output.splitlines()
    assert (
        "knative/serving knative-v1.23.0: 4 files are in checksums.txt, which nobody signed"
        in lines
    )
    plugin = "knative-extensions/net-kourier knative-v1.23.0"
    assert f"{plugin}: 1 files; no checksums of it in this folder" in lines


async def test_a_file_that_is_not_the_published_one_is_refused(tmp_path: Path) -> None:
    """As it comes from the server, and later, when somebody changed it together with the lock."""
    path = f"{SERVING}/serving-core.yaml"
    other = manifest("another")
    with pytest.raises(Tampered, match=r"2-serving-core\.yaml: has the digest"):
        await pulled(Publisher(nothing, {path: other}), tmp_path / "first")
    assert not (tmp_path / "first" / "bundle").exists()

    bundle = await pulled(Publisher(nothing), tmp_path / "second")
    (bundle / "knative-serving/1.23.0/2-serving-core.yaml").write_bytes(other)
    (bundle / "bundle.lock").unlink()
    said = verify(bundle)

    assert said.exit_code == 1
    assert "but checksums.txt of knative/serving knative-v1.23.0 says" in said.output


async def test_a_signature_by_a_pinned_key_is_checked(tmp_path: Path) -> None:
    """Every release must have one then: the plugin that publishes no checksums is refused."""
    key = generate_private_key(SECP256R1())
    publisher = Publisher(by_key(key))
    with pytest.raises(
        Tampered, match=r"no checksums of .*net-kourier knative-v1.* in this folder"
    ):
        await pulled(publisher, tmp_path / "all", pem(key))
    kourier = "/knative-extensions/net-kourier/releases/download/knative-v1.23.0/kourier.yaml"
    publisher = structs.replace(publisher, others={kourier: None})

    bundle = await pulled(publisher, tmp_path, pem(key))
    said = verify(bundle, "--key", str(tmp_path / "pinned-0.pem"))
    unchecked = verify(bundle)

    assert said.exit_code == 0, said.output
    assert "4 files are in checksums.txt, signed by pinned key 1" in said.output
    assert "in checksums.txt, whose signature was not checked" in unchecked.output


async def test_a_signature_by_another_key_or_none_is_refused(tmp_path: Path) -> None:
    """And a signature over other checksums."""
    key, other = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    signer = by_key(key)
    cases: dict[str, tuple[Callable[[bytes], dict[str, bytes]], str]] = {
        "another": (by_key(other), "is not signed by a pinned key"),
        "none": (nothing, "has no signature, which pinned keys require"),
        "else": (lambda content: signer(content + b"else"), "is not signed by a pinned key"),
        "text": (lambda content: {"checksums.txt.sig": b"???"}, "is no signature of cosign"),
    }
    for name, (sign, words) in cases.items():
        with pytest.raises(Tampered, match=f"checksums.txt of knative/.*{words}"):
            await pulled(Publisher(sign), tmp_path / name, pem(key))
        assert not (tmp_path / name / "bundle").exists()


async def test_keys_are_required_for_the_versions_that_were_asked_for_alone(
    tmp_path: Path,
) -> None:
    """Other versions that were downloaded before need no signatures, and may be damaged."""
    key = generate_private_key(SECP256R1())
    kourier = "/knative-extensions/net-kourier/releases/download/knative-v1.23.0/kourier.yaml"
    await pulled(Publisher(nothing), tmp_path, version="1.22.1")
    for file in (tmp_path / "cache").rglob("2-serving-core.yaml"):
        file.write_bytes(b"damaged")

    bundle = await pulled(Publisher(by_key(key), {kourier: None}), tmp_path, pem(key))

    assert sorted(path.name for path in bundle.glob("knative-*/*")) == ["1.23.0", "1.23.0"]
    assert sorted(path.name for path in bundle.glob("published-checksums/*/*/*")) == [
        "knative-v1.23.0",
        "knative-v1.23.0",
    ]


@pytest.mark.parametrize("above", ["pinned", "sent"])
async def test_a_certificate_of_a_pinned_authority_names_the_signer(
    tmp_path: Path, above: str
) -> None:
    """The authority below the pinned one is pinned, too, or comes with the certificate."""
    root = authority()
    middle = authority("middle", above=root)
    key = generate_private_key(SECP256R1())
    parts = [root.certificate, middle.certificate]
    root_pem, middle_pem = [each.public_bytes(Encoding.PEM) for each in parts]
    chain = middle.issue(key) + (middle_pem if above == "sent" else b"")
    kourier = "/knative-extensions/net-kourier/releases/download/knative-v1.23.0/kourier.yaml"
    publisher = Publisher(by_certificate(key, chain), {kourier: None})

    pinned = [root_pem] if above == "sent" else [root_pem + middle_pem]
    bundle = await pulled(publisher, tmp_path, *pinned)
    said = verify(bundle, "--key", str(tmp_path / "pinned-0.pem"))

    assert f"signed by {IDENTITY} by a certificate of {ISSUER}" in said.output
    assert said.exit_code == 0


async def test_certificates_that_prove_nothing_are_refused(tmp_path: Path) -> None:
    """Of others, for others, for something else, or not by an authority."""
    root, stranger = authority(), authority()
    key = generate_private_key(SECP256R1())
    no_authority = authority("leaf", is_ca=False, above=root)
    late = START + YEARS + MINUTES
    below = no_authority.certificate.public_bytes(Encoding.PEM)
    nobody = root.issue(key, identity=x509.DNSName("a.com"))
    cases = {
        "stranger": (stranger.issue(key), "is of no pinned authority"),
        "identity": (root.issue(key, identity="a@example.com"), "was signed by a@example.com"),
        "issuer": (root.issue(key, issuer="https://example.com"), "confirmed by https://example"),
        "usage": (root.issue(key, usage=ExtendedKeyUsageOID.SERVER_AUTH), "not for signing code"),
        "late": (root.issue(key, start=late), "is of no pinned authority"),
        "leaf": (no_authority.issue(key) + below, "is of no pinned authority"),
        "other": (root.issue(generate_private_key(SECP256R1())), "is not by the key of its"),
        "nobody": (nobody, "names no signer"),
        "twice": (changed(nobody, USAGE, ALTERNATIVE_NAME), "the certificate cannot be read"),
        "kind": (changed(nobody, b"\x82\x05a.com", b"\xa3\x05a.com"), "cannot be read"),
        "version": (changed(nobody, VERSION_3, VERSION_8), "the certificate cannot be read"),
        "text": (b"-----BEGIN CERTIFICATE-----\nx", "the certificate cannot be read"),
    }
    pinned = root.certificate.public_bytes(Encoding.PEM)
    for name, (certificate, words) in cases.items():
        with pytest.raises(Tampered, match=words):
            await pulled(Publisher(by_certificate(key, certificate)), tmp_path / name, pinned)


async def test_the_page_about_release_files_can_be_followed(tmp_path: Path) -> None:
    """A server on loopback stands for the project's."""
    key = generate_private_key(SECP256R1())
    kourier = "/knative-extensions/net-kourier/releases/download/knative-v1.23.0/kourier.yaml"
    (tmp_path / "cosign.pub").write_bytes(pem(key))
    async with Publisher(by_key(key), {kourier: None}).serving() as host:
        own = {"KNFLEET_RELEASES_URL": host, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        reader = Reader(tmp_path, surroundings(tmp_path, Path(sys.executable), **own))

        assert await reader.follow(PAGE) == 2


def test_pinned_files_without_keys_are_refused(tmp_path: Path) -> None:
    """With the file's name."""
    file = tmp_path / "cosign.pub"
    file.write_text("nothing")

    with pytest.raises(NotAvailable, match=r"cosign\.pub: has no public key or certificate"):
        pinned_keys((file,), IDENTITY, ISSUER)


async def test_files_of_no_release_are_refused_with_pinned_keys(tmp_path: Path) -> None:
    """Whatever the folder says of itself."""
    key = generate_private_key(SECP256R1())
    kourier = "/knative-extensions/net-kourier/releases/download/knative-v1.23.0/kourier.yaml"
    bundle = await pulled(Publisher(by_key(key), {kourier: None}), tmp_path, pem(key))
    (bundle / "ingress/1.23/mine").mkdir(parents=True)
    (bundle / "ingress/1.23/mine/a.yaml").write_bytes(manifest("mine"))
    (bundle / "bundle.lock").unlink()

    said = verify(bundle, "--key", str(tmp_path / "pinned-0.pem"))

    assert said.exit_code == 1
    assert "ingress/1.23/mine/a.yaml is no file of a release of Knative" in said.output


@pytest.mark.parametrize(
    "path", ["ingress/1.23/kourier/kourier.yaml", "knative-serving/latest/a.yaml"]
)
def test_a_folder_without_numbered_versions_is_told_so(tmp_path: Path, path: str) -> None:
    """Without keys nothing is required of it."""
    bundle = tmp_path / "bundle"
    (bundle / path).parent.mkdir(parents=True)
    (bundle / path).write_bytes(manifest("a"))
    (bundle / "published-checksums").mkdir()
    (tmp_path / "cosign.pub").write_bytes(pem(generate_private_key(SECP256R1())))

    unchecked = verify(bundle)
    said = verify(bundle, "--key", str(tmp_path / "cosign.pub"))

    assert unchecked.exit_code == 0, unchecked.output
    assert said.exit_code == 1
    assert f"{bundle}: has no version of knative-serving or knative-eventing" in said.output


@pytest.mark.parametrize("line", ["<html>", "abc  a.yaml", f"{'0' * 64}  ../a.yaml"])
def test_checksums_of_another_format_are_refused(line: str) -> None:
    """A line that is not understood could hide one that counts."""
    with pytest.raises(Exception, match="is no line of sha256sum"):
        checksums("here", line.encode())
