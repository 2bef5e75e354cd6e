"""Files are read again, one refresh serves all, and a failure is not repeated for every request."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from knfleet.kube.auth.credentials import (
    CachedCredential,
    CertificatePair,
    CombinedCredential,
    Credential,
    StaticCredential,
    TokenFile,
)
from knfleet.kube.errors import CredentialError, Forbidden
from testbed.fakes.certificates import Authority

START = datetime(2030, 1, 1, tzinfo=UTC)
SECRET = "s3cret-t0ken"


class Clocks:
    """The two clocks of a login, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def pass_(self, seconds: float) -> None:
        self.seconds += seconds

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def clock(self) -> float:
        return self.seconds


class Source:
    """Gives a numbered token each time, or fails, when a gate is open."""

    def __init__(self, clocks: Clocks, lifetime: float | None = None) -> None:
        self.clocks = clocks
        self.lifetime = lifetime
        self.fetched = 0
        self.failing: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.ended_early = 0

    async def fetch(self) -> Credential:
        self.fetched += 1
        number = self.fetched
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended_early += 1
            raise
        if self.failing is not None:
            raise self.failing
        expires = None
        if self.lifetime is not None:
            expires = self.clocks.now() + timedelta(seconds=self.lifetime)
        return Credential(token=f"token-{number}", expires=expires)


@pytest.fixture
def clocks() -> Clocks:
    """Clocks at their beginning."""
    return Clocks()


def login_with(source: Source, clocks: Clocks) -> CachedCredential:
    """A login on clocks that a test moves."""
    return CachedCredential(source, now=clocks.now, clock=clocks.clock)


async def turns(count: int = 5) -> None:
    """Let all tasks come as far as they can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_token_is_used_until_shortly_before_its_end(clocks: Clocks) -> None:
    """The last half minute of it is not used."""
    source = Source(clocks, lifetime=3600)
    login = login_with(source, clocks)

    tokens: list[str | None] = []
    for seconds in (0, 3569, 2):
        clocks.pass_(seconds)
        tokens.append((await login.current()).token)

    assert tokens == ["token-1", "token-1", "token-2"]


async def test_half_of_a_short_life_is_used(clocks: Clocks) -> None:
    """A token that lives shorter than the skew does not cause a refresh for every request."""
    source = Source(clocks, lifetime=20)
    login = login_with(source, clocks)

    tokens: list[str | None] = []
    for seconds in (0, 9, 2):
        clocks.pass_(seconds)
        tokens.append((await login.current()).token)

    assert tokens == ["token-1", "token-1", "token-2"]


async def test_the_observer_hears_of_each_refresh(clocks: Clocks) -> None:
    """Once for each credential, not for each request."""
    heard: list[int] = []
    source = Source(clocks)
    login = CachedCredential(
        source, now=clocks.now, clock=clocks.clock, refreshed=lambda: heard.append(1)
    )

    await asyncio.gather(*(login.current() for _ in range(10)))
    login.reject(await login.current())
    await login.current()

    assert 2 == len(heard) == source.fetched


async def test_a_failure_is_remembered_longer_each_time(clocks: Clocks) -> None:
    """One, two, four seconds; a success begins anew."""
    source = Source(clocks)
    source.failing = CredentialError("no luck")
    login = login_with(source, clocks)
    fetched: list[int] = []

    for seconds in (0, 0.9, 0.2, 1.8, 0.3, 3.8, 0.3):
        clocks.pass_(seconds)
        with pytest.raises(CredentialError, match="no luck"):
            await login.current()
        fetched.append(source.fetched)

    assert fetched == [1, 1, 2, 2, 3, 3, 4]
    with pytest.raises(CredentialError, match="no luck; next try in 8 s"):
        await login.current()
    clocks.pass_(8)
    source.failing = None
    assert (await login.current()).token == "token-5"


async def test_a_failed_refresh_takes_nothing_away(clocks: Clocks) -> None:
    """The old token serves to its very end, then the failure is told."""
    source = Source(clocks, lifetime=3600)
    login = login_with(source, clocks)
    await login.current()
    source.failing = CredentialError("no luck")

    clocks.pass_(3580)
    assert (await login.current()).token == "token-1"
    assert (await login.current()).token == "token-1"
    assert source.fetched == 2
    clocks.pass_(20)

    with pytest.raises(CredentialError, match="no luck"):
        await login.current()


async def test_every_failure_of_a_source_is_a_credential_error(clocks: Clocks) -> None:
    """A source may ask an API server itself."""
    source = Source(clocks)
    source.failing = Forbidden("no", code=403)

    with pytest.raises(CredentialError) as caught:
        await login_with(source, clocks).current()

    assert isinstance(caught.value.__cause__, Forbidden)


async def test_a_bug_in_a_source_is_not_hidden(clocks: Clocks) -> None:
    """It reaches everybody who waits, and is not remembered as a failure to log in."""
    source = Source(clocks)
    source.failing = ZeroDivisionError("bug")
    login = login_with(source, clocks)

    outcomes = await asyncio.gather(*(login.current() for _ in range(3)), return_exceptions=True)

    assert all(isinstance(outcome, ZeroDivisionError) for outcome in outcomes)
    source.failing = None
    assert (await login.current()).token == "token-2"


async def test_a_rejected_credential_is_replaced_once_and_then_with_patience(
    clocks: Clocks,
) -> None:
    """A server that accepts nothing does not make the source run for every request."""
    source = Source(clocks)
    login = login_with(source, clocks)

    for _ in range(10):
        login.reject(await login.current())
    assert source.fetched == 2
    clocks.pass_(1.1)
    login.reject(await login.current())
    await login.current()

    assert source.fetched == 3


async def test_a_credential_that_served_for_long_is_replaced_at_once(clocks: Clocks) -> None:
    """Earlier rejections are forgiven."""
    source = Source(clocks)
    login = login_with(source, clocks)
    for _ in range(4):
        login.reject(await login.current())
        clocks.pass_(10)

    served = await login.current()
    clocks.pass_(100)
    login.reject(served)
    await login.current()
    clocks.pass_(1.1)
    before = source.fetched
    login.reject(await login.current())
    await login.current()

    assert before + 1 == source.fetched


async def test_rejecting_an_older_credential_changes_nothing(clocks: Clocks) -> None:
    """It was replaced while the request was under way."""
    source = Source(clocks)
    login = login_with(source, clocks)
    old = await login.current()
    login.reject(old)
    new = await login.current()

    login.reject(old)

    assert new is await login.current()


async def test_a_cancelled_waiter_leaves_the_others_alone(clocks: Clocks) -> None:
    """The refresh goes on for whoever stays."""
    source = Source(clocks)
    source.gate.clear()
    login = login_with(source, clocks)
    tasks = [asyncio.create_task(login.current()) for _ in range(3)]
    await turns()

    tasks[0].cancel()
    tasks[1].cancel()
    await turns()
    source.gate.set()

    assert (await tasks[2]).token == "token-1"
    assert (source.ended_early, source.fetched) == (0, 1)
    assert tasks[0].cancelled()
    assert tasks[1].cancelled()


async def test_the_last_waiter_ends_the_refresh(clocks: Clocks) -> None:
    """It is over before the waiter is, and is no failure."""
    source = Source(clocks)
    source.gate.clear()
    login = login_with(source, clocks)
    tasks = [asyncio.create_task(login.current()) for _ in range(2)]
    await turns()

    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert source.ended_early == 1
    source.gate.set()
    assert (await login.current()).token == "token-2"


async def test_a_waiters_deadline_is_its_own(clocks: Clocks) -> None:
    """One gives up, another waits on."""
    source = Source(clocks)
    source.gate.clear()
    login = login_with(source, clocks)
    patient = asyncio.create_task(login.current())

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await login.current()
    source.gate.set()

    assert (await patient).token == "token-1"


async def test_a_token_file_is_read_again(tmp_path: Path, clocks: Clocks) -> None:
    """Every half minute, and at once after a rejection."""
    path = tmp_path / "token"
    path.write_text("one\n")
    clocks.seconds = (datetime.now(UTC) - START).total_seconds()
    login = CachedCredential(TokenFile(path), now=clocks.now, clock=clocks.clock)
    assert (await login.current()).token == "one"

    path.write_text("two")
    assert (await login.current()).token == "one"
    clocks.pass_(31)
    assert (await login.current()).token == "two"
    path.write_text("three")
    login.reject(Credential(token="two"))

    assert (await login.current()).token == "three"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read: No such file"), ("", "is empty"), ("odd thing\n", "not a token")],
)
async def test_a_token_file_that_is_no_good_is_named(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    """Its content is not."""
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)

    with pytest.raises(CredentialError, match=reason) as caught:
        await TokenFile(path).fetch()

    assert str(path) in str(caught.value)
    assert "odd thing" not in str(caught.value)


async def test_certificate_files_are_read_again(tmp_path: Path) -> None:
    """A renewed pair is taken up; a pair in the middle of its renewal is refused."""
    authority = Authority()
    old, new = authority.client("one"), authority.client("two")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(old.certificate)
    key.write_bytes(old.key)
    pair = CertificatePair(certificate, key)
    first = await pair.fetch()

    certificate.write_bytes(new.certificate)
    with pytest.raises(CredentialError, match="does not belong") as caught:
        await pair.fetch()
    key.write_bytes(new.key)
    second = await pair.fetch()

    assert str(key) in str(caught.value)
    assert (old.certificate, old.key) == (first.client_certificate, first.client_key)
    assert (new.certificate, new.key) == (second.client_certificate, second.client_key)
    assert first.expires is not None


async def test_an_inline_pair_lasts() -> None:
    """There is nothing to read again."""
    pair = Authority().client("one")

    credential = await CertificatePair(pair.certificate, pair.key).fetch()

    assert credential.expires is None
    assert "PRIVATE" not in repr(CertificatePair(pair.certificate, pair.key))


@pytest.mark.parametrize(
    ("certificate", "key", "reason"),
    [(b"x", b"y", "certificate is not a PEM"), (None, b"y", "key is not a PEM private key")],
)
async def test_what_is_no_pair_is_refused(
    certificate: bytes | None, key: bytes, reason: str
) -> None:
    """The part at fault is named."""
    good = Authority().client("one")

    with pytest.raises(CredentialError, match=reason):
        await CertificatePair(certificate or good.certificate, key).fetch()


async def test_an_encrypted_key_is_refused_with_the_remedy() -> None:
    """There is nobody to ask for the passphrase."""
    from cryptography.hazmat.primitives import serialization

    pair = Authority().client("one")
    key = serialization.load_pem_private_key(pair.key, None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"x"),
    )

    with pytest.raises(CredentialError, match="encrypted; store it without a passphrase"):
        await CertificatePair(pair.certificate, locked).fetch()


async def test_a_token_and_a_certificate_end_together(tmp_path: Path) -> None:
    """The earlier end counts."""
    pair = Authority().client("one")
    (tmp_path / "token").write_text(SECRET)
    inline = CertificatePair(pair.certificate, pair.key)

    both = await CombinedCredential(TokenFile(tmp_path / "token"), inline).fetch()
    lasting = await CombinedCredential(StaticCredential(Credential(token=SECRET)), inline).fetch()

    assert (SECRET, pair.certificate) == (both.token, both.client_certificate)
    assert both.expires is not None
    assert lasting.expires is None


def test_secrets_are_not_in_the_repr() -> None:
    """Neither for logs nor for pretty printers."""
    key = b"PRIVATE KEY"
    credential = Credential(token=SECRET, client_certificate=b"C", client_key=key)

    for shown in (credential, StaticCredential(credential), CertificatePair(b"C", key)):
        assert SECRET not in repr(shown) + str(shown.__rich_repr__())
        assert "PRIVATE" not in repr(shown) + str(shown.__rich_repr__())
    assert repr(credential) == "Credential(token+client_certificate, expires=None)"
