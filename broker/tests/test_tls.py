"""An encrypted listener: what a client sees, who the client is, and what strangers can make the broker do."""

from __future__ import annotations

import contextlib
import ssl
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography import x509
from trio.testing import MockClock

from barnabas.broker.failures import leaves
from barnabas.broker.net import handshakes
from barnabas.broker.security import tls as security_tls
from barnabas.broker.security.driver_certificate import driver_certificate
from barnabas.broker.security.principals import ANONYMOUS, DRIVER
from barnabas.broker.settings.config import read_properties
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.tests.client import (
    Client,
    Closed,
    answer_of,
    batch_of,
    fetch_request,
    frame_of,
    produce_request,
)
from barnabas.broker.tests.conftest import Running, Start, until
from barnabas.broker.tests.sasl_client import ScramClient, log_in_plain
from barnabas.broker.tests.test_quotas_enforced import happens, limit, muted
from barnabas.broker.tests.tls_client import client_context, tls_connect
from barnabas.client import tls as client_tls
from barnabas.wire import driver_login
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.queries.writer import PROPERTIES_FILE
from compat_tests.security.certificates import DAY, Authority, Issued

CA = Authority()
BROKER = CA.issue()
SSL = {"listeners": "SSL://127.0.0.1:0", "ssl_keystore_type": "PEM", "ssl_truststore_type": "PEM"}


@pytest.fixture
def tls(start: Start, tmp_path: Path) -> Any:
    """Start a broker with one TLS listener. Underscores in the names of settings stand for dots."""

    @asynccontextmanager
    async def run(broker: Issued = BROKER, **settings: str) -> AsyncIterator[Running]:
        keys = {"ssl_keystore_location": broker.pem(tmp_path / "broker.pem")}
        trust = {"ssl_truststore_location": CA.trust_pem(tmp_path / "ca.pem")}
        async with start(**{**SSL, **keys, **trust, **settings}) as running:
            yield running

    return run


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])


@VERSIONS
async def test_a_client_produces_and_fetches(tls: Any, version: ssl.TLSVersion) -> None:
    context = client_context(CA, minimum_version=version, maximum_version=version)
    async with tls() as running, await tls_connect(running.port, context) as client:
        await client.create_topic("t")
        large = batch_of(bytes(range(256)) * 3000)
        for data in (batch_of(b"small"), large, large):
            assert (await client.produce("t", data)).error_code == 0
        fetched = await client.fetch("t", max_bytes=1 << 24, partition_max_bytes=1 << 24)
        assert len(fetched.records) == len(batch_of(b"small")) + 2 * len(large)


async def test_an_old_version_is_refused(tls: Any) -> None:
    context = client_context(CA)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with tls() as running:
        with pytest.raises(trio.BrokenResourceError):
            await tls_connect(running.port, context)
        await until(lambda: "ssl.enabled.protocols" in running.log)


async def test_a_client_that_does_not_speak_tls_is_told_of(tls: Any) -> None:
    async with tls() as running:
        client = await running.client()
        with pytest.raises(Closed):
            await client.ask(ApiVersionsRequest("t", "1"))
        await until(lambda: "tls.plain_client" in running.log)
        assert "00 00 00" in running.log


async def test_a_client_that_speaks_tls_to_a_plain_listener_is_told_of(start: Start) -> None:
    async with start() as running:
        with pytest.raises(trio.BrokenResourceError):
            await tls_connect(running.port, client_context(CA))
        assert "plain.tls_client" in running.log
        assert "request of" not in running.log


async def test_a_client_is_who_its_certificate_says(tls: Any) -> None:
    rules = "RULE:^CN=([^,]*),O=Example$/$1/L, DEFAULT"
    async with tls(ssl_client_auth="requested", ssl_principal_mapping_rules=rules) as running:
        for own, expected in (
            (CA.issue("Alice", organization="Example"), "User:alice"),
            (CA.issue("Bob"), "User:CN=Bob"),
            (None, "User:ANONYMOUS"),
        ):
            async with await tls_connect(running.port, client_context(CA, own)) as client:
                await client.ask(ApiVersionsRequest("t", "1"))
                (connection,) = running.node.connections
                assert str(connection.principal) == expected
            await until(lambda: not len(running.node.connections))


@VERSIONS
@pytest.mark.parametrize(
    ("own", "why"),
    [
        (None, "ssl.client.auth=required"),
        (Authority("Other").issue("alice"), "unable to get"),
        (CA.issue("alice", begins=-3 * DAY, ends=-DAY), "expired"),
    ],
    ids=["none", "of another authority", "expired"],
)
async def test_a_wrong_certificate_is_refused(tls: Any, version: ssl.TLSVersion, own: Issued | None, why: str) -> None:
    context = client_context(CA, own, minimum_version=version, maximum_version=version)
    async with tls(ssl_client_auth="required") as running:
        with pytest.raises((Closed, trio.BrokenResourceError)):
            async with await tls_connect(running.port, context) as client:
                await client.ask(ApiVersionsRequest("t", "1"))
        await until(lambda: why in running.log)
        right = client_context(CA, CA.issue("alice"), minimum_version=version, maximum_version=version)
        async with await tls_connect(running.port, right) as client:
            await client.ask(ApiVersionsRequest("t", "1"))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_streams_driver_gets_in_where_certificates_are_required(
    tls: Any, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """Its certificate only lets it log in; those of other starts are worth nothing."""

    def as_driver() -> ssl.SSLContext:
        context = client_tls.client_context(read_properties(tmp_path / "data" / PROPERTIES_FILE))
        context.maximum_version = version
        return context

    async with tls(ssl_client_auth="required") as running, await tls_connect(running.port, as_driver()) as client:
        (connection,) = running.node.connections
        assert (await client.ask(ApiVersionsRequest("t", "1"))).error_code == 0
        assert connection.principal == ANONYMOUS
        secret = running.node.queries.secret.writer_id
        assert (await ScramClient(driver_login.NAME, secret).log_in(client, driver_login.MECHANISM)).error_code == 0
        assert connection.principal == DRIVER
        before = as_driver()
    async with tls(ssl_client_auth="required") as running:
        with pytest.raises((trio.BrokenResourceError, Closed)):
            async with await tls_connect(running.port, before) as client:
                await client.ask(ApiVersionsRequest("t", "1"))
        async with await tls_connect(running.port, as_driver()) as client:
            assert (await client.ask(ApiVersionsRequest("t", "1"))).error_code == 0


def test_each_secret_has_a_certificate_of_its_own_which_is_the_same_on_all_nodes() -> None:
    one, other = driver_certificate("one"), driver_certificate("other")
    assert one == driver_certificate("one")
    assert (one.key, one.der) != (other.key, other.der)
    assert "one" not in one.certificate


async def test_under_sasl_ssl_the_login_says_who_a_client_is(start: Start, tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    more = {
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} user_alice="alice-secret";',
        "listener.name.sasl_ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": BROKER.pem(tmp_path / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": CA.trust_pem(tmp_path / "ca.pem"),
        "listeners": "SASL_SSL://127.0.0.1:0",
    }
    async with start(more=more) as running:
        with pytest.raises((Closed, trio.BrokenResourceError)):
            async with await tls_connect(running.port, client_context(CA)) as client:
                await client.ask(ApiVersionsRequest("t", "1"))
        async with await tls_connect(running.port, client_context(CA, CA.issue("bob"))) as client:
            async with await tls_connect(running.port, client_context(CA, CA.issue("eve"))) as stranger:
                await stranger.send_bytes((1 << 20).to_bytes(4, "big"))
                assert await stranger.is_closed()  # a certificate alone does not allow requests of any size
            assert (await log_in_plain(client, "alice", "alice-secret")).error_code == 0
            (connection,) = running.node.connections
            assert str(connection.principal) == "User:alice"
            assert len(running.node.connections.strangers) == 0
            await client.create_topic("t")
            assert (await client.produce("t", batch_of(bytes(1 << 19)))).error_code == 0


async def test_the_key_of_all_listeners_asks_for_no_certificate_beside_sasl(start: Start, tmp_path: Path) -> None:
    more = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": BROKER.pem(tmp_path / "broker.pem"),
        "listeners": "SASL_SSL://127.0.0.1:0",
    }
    async with start(more=more) as running, await tls_connect(running.port, client_context(CA)) as client:
        assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0


class InMemory:
    """The client's side of TLS without a socket, so that a test decides when each byte is sent."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake(self) -> bytes:
        """The next bytes to send."""
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()


async def test_a_handshake_that_comes_byte_by_byte(tls: Any) -> None:
    async with tls() as running, await running.client() as plain:
        mine = InMemory(client_context(CA))

        async def by_bytes(data: bytes) -> None:
            for at in range(len(data)):
                await plain.send_bytes(data[at : at + 1])
                await trio.lowlevel.checkpoint()

        await by_bytes(mine.shake())
        last = b""
        while not last:
            mine.incoming.write(await plain.stream.receive_some(1 << 16))
            last = mine.shake()
        await by_bytes(last)
        mine.object.write(frame_of(ApiVersionsRequest(), 0))
        await by_bytes(mine.outgoing.read())
        mine.incoming.write(await plain.stream.receive_some(1 << 16))
        answer = mine.object.read(1 << 16)
        assert answer_of(answer[4:], ApiVersionsRequest(), 0, 1).error_code == 0


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x00\x04abcd", b"\x16\x03\x01\xff\xff", b"\x16\x16\x16\x16\x16\x16", b"GET / HTTP/1.1\r\n\r\n"],
    ids=["no hello", "too long", "no version", "http"],
)
async def test_garbage_closes_its_connection_only(tls: Any, data: bytes) -> None:
    async with tls() as running, await tls_connect(running.port, client_context(CA)) as other:
        async with await running.client() as client:
            await client.send_bytes(data)
            assert await client.is_closed()
        await other.ask(ApiVersionsRequest())
        assert "connection.failed" not in running.log


async def test_there_is_no_renegotiation(tls: Any) -> None:
    context = client_context(CA, maximum_version=ssl.TLSVersion.TLSv1_2)
    async with tls() as running, await tls_connect(running.port, context) as client:
        await client.ask(ApiVersionsRequest("t", "1"))
        await client.stream.transport_stream.send_all(b"\x16\x03\x03\x00\x28" + bytes(40))  # type: ignore[attr-defined]
        assert await client.is_closed()
        await until(lambda: "no renegotiation" in running.log)


async def test_an_answer_waits_for_a_client_that_reads_slowly(tls: Any) -> None:
    async with tls() as running, await tls_connect(running.port, client_context(CA)) as client:
        await client.create_topic("t")
        batch = batch_of(bytes(900_000))
        for _ in range(30):
            await client.produce("t", batch)
        sizes = {"max_bytes": 1 << 25, "partition_max_bytes": 1 << 25}
        assert len((await client.fetch("t", **sizes)).records) == 30 * len(batch)


async def test_requests_in_small_records_are_all_answered(tls: Any) -> None:
    async with tls() as running, await tls_connect(running.port, client_context(CA)) as client:
        stream: Any = client.stream
        data = frame_of(ApiVersionsRequest(), 0) * 30
        ssl_object, outgoing = stream._ssl_object, stream._outgoing
        for at in range(len(data)):
            ssl_object.write(data[at : at + 1])
        await stream.transport_stream.send_all(outgoing.read())  # hundreds of records at once, with one byte in each
        for _ in range(30):
            await client.receive_frame()


async def test_pipelined_clients(tls: Any) -> None:
    async with tls() as running, await tls_connect(running.port, client_context(CA)) as client:
        await client.create_topic("t")

        async def send() -> None:
            for _ in range(200):
                await client.send(ApiVersionsRequest())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(200):
                while not client._expected:
                    await trio.sleep(0)
                await client.receive()


HELLO = InMemory(client_context(CA)).shake()


@pytest.mark.parametrize("at_once", [True, False])
async def test_requests_ahead_of_a_quota_wait_in_the_records_that_have_come(
    tls: Any, mock_clock: MockClock, at_once: bool
) -> None:
    """OpenSSL has them already, so the socket is silent when their turn comes."""
    async with tls() as running, await tls_connect(running.port, client_context(CA)) as client:
        await client.create_topic("t")
        await limit(client, {"client-id": client.client_id}, producer_byte_rate=100)
        frames = [frame_of(produce_request("t", batch_of(bytes(5000))), 9, number) for number in range(1, 5)]
        for part in [b"".join(frames)] if at_once else frames:
            await client.send_bytes(part)
        for number in range(1, 5):
            await client.receive_frame()
            await happens(lambda: len(muted(running)) == 1)
            assert running.node.vnodes["t", 0].log_end_offset == number
            mock_clock.jump(1000.0)
        await happens(lambda: not muted(running))


async def test_half_open_handshakes_keep_nobody_out(tls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MOST_BEGUN", 8)
    async with tls() as running, await tls_connect(running.port, client_context(CA)) as inside:
        strangers = [await running.client() for _ in range(60)]
        for stranger in strangers:
            await stranger.send_bytes(HELLO)  # and sends nothing more
        shared = running.node.connections.handshakes
        await until(lambda: shared.begun == 8)
        await inside.ask(ApiVersionsRequest())
        for _ in range(3):
            async with await tls_connect(running.port, client_context(CA), source="127.0.0.2") as other:
                await other.ask(ApiVersionsRequest())
                assert shared.begun <= 8
        for stranger in strangers:
            await stranger.stream.aclose()
        await until(lambda: shared.begun == 0)
        async with await tls_connect(running.port, client_context(CA)) as same:
            await same.ask(ApiVersionsRequest())


async def test_a_handshake_that_sends_too_much_before_it_begins_is_ended(tls: Any) -> None:
    async with tls() as running, await running.client() as stranger:
        with contextlib.suppress(trio.BrokenResourceError):
            for _ in range(200):
                await stranger.send_bytes(b"\x16\x03\x01\x00\x01\x01" * 1000)
        assert await stranger.is_closed()
        await until(lambda: "tls.failed" in running.log)


async def test_a_client_that_does_not_read_costs_its_backlog_only(tls: Any) -> None:
    async with tls() as running, await tls_connect(running.port, client_context(CA)) as client:
        await client.create_topic("t")
        for _ in range(12):
            await client.produce("t", batch_of(bytes(900_000)))
        request = fetch_request("t", max_bytes=1 << 25, partition_max_bytes=1 << 25)
        for _ in range(20):  # of 10 MB each
            await client.send(request, 12)
        tracemalloc.start()
        try:
            (connection,) = running.node.connections
            await until(lambda: connection.unsent_bytes > 0)
            for _ in range(50):
                await trio.sleep(0.001)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()
        for _ in range(20):
            answer = await client.receive()
            assert len(answer.responses[0].partitions[0].records) > 10_000_000


async def test_what_a_certificate_says_forges_no_line_of_the_log(tls: Any) -> None:
    name = "Mallory\n2026-01-01T00:00:00.000Z error forged"
    async with tls(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=x$/x/") as running:
        with pytest.raises((Closed, trio.BrokenResourceError)):
            async with await tls_connect(running.port, client_context(CA, CA.issue(name))) as client:
                await client.ask(ApiVersionsRequest("t", "1"))
        await until(lambda: "no rule" in running.log)
        assert not [line for line in running.log.splitlines() if line.startswith("2026-01-01")]


# --- renewed stores ---------------------------------------------------------------------------------------------------


async def serial(port: int) -> int:
    """The serial number of the certificate that a new connection gets."""
    async with await tls_connect(port, client_context(CA)) as client:
        shown = client.stream.getpeercert(binary_form=True)  # type: ignore[attr-defined]
    return x509.load_der_x509_certificate(shown).serial_number


async def alter(client: Client, changes: dict[str, str], node: str = "1", *, validate_only: bool = False) -> Any:
    """Set keys of the broker. Returns its answer."""
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in changes.items()]
    resource = AlterConfigsResource(resource_type=4, resource_name=node, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return (await client.ask(request)).responses[0]


async def test_a_renewed_file_is_taken(tls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_tls, "WATCH_SECONDS", 0.01)
    renewed = CA.issue()
    async with tls() as running, await tls_connect(running.port, client_context(CA)) as before:
        assert await serial(running.port) == BROKER.certificate.serial_number
        (tmp_path / "broker.pem").write_text("-----BEGIN half")
        await until(lambda: "tls.not.renewed" in running.log)
        assert await serial(running.port) == BROKER.certificate.serial_number
        (tmp_path / "new.pem").write_text(renewed.key_pem() + renewed.chain_pem())
        (tmp_path / "new.pem").rename(tmp_path / "broker.pem")
        await until(lambda: "tls.renewed" in running.log)
        assert await serial(running.port) == renewed.certificate.serial_number
        await before.ask(ApiVersionsRequest())
        assert running.log.count("tls.not.renewed") == 1


async def test_an_altered_key_store_is_taken_and_a_bad_one_refused(tls: Any, tmp_path: Path) -> None:
    renewed, other = CA.issue(), CA.issue("somebody else")
    prefix = "listener.name.ssl.ssl.keystore."
    async with tls() as running, await tls_connect(running.port, client_context(CA)) as client:
        for location, why in (
            ("/no/such/file", "cannot read the file"),
            (other.pem(tmp_path / "other.pem"), "ssl.allow.dn.changes"),
            (CA.issue(hosts=["localhost"]).pem(tmp_path / "fewer.pem"), "ssl.allow.san.changes"),
        ):
            answer = await alter(client, {prefix + "location": location})
            assert (answer.error_code, why in answer.error_message) == (42, True), answer
        assert await serial(running.port) == BROKER.certificate.serial_number
        new = {prefix + "location": renewed.pkcs12(tmp_path / "new.p12", "hidden"), prefix + "type": "PKCS12"}
        answer = await alter(client, {**new, prefix + "password": "wr0ng"})
        assert (answer.error_code, "wr0ng" in answer.error_message) == (42, False)
        assert (await alter(client, {**new, prefix + "password": "hidden"}, validate_only=True)).error_code == 0
        assert await serial(running.port) == BROKER.certificate.serial_number
        assert (await alter(client, {**new, prefix + "password": "hidden"})).error_code == 0
        assert await serial(running.port) == renewed.certificate.serial_number
        asked = DescribeConfigsResource(resource_type=4, resource_name="1")
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
        shown = await client.ask(request)
        assert "hidden" not in repr(shown)
        (entry,) = [each for each in shown.results[0].configs if each.name == prefix + "password"]
        assert (entry.value, entry.is_sensitive, entry.config_type) == (None, True, 9)
        assert "hidden" not in running.log
        assert (await alter(client, {"ssl.keystore.location": "/x"})).error_code == 42
        assert (await alter(client, {prefix + "location": "/x"}, node="")).error_code == 42
        assert (await alter(client, {"listener.name.ssl.ssl.client.auth": "none"})).error_code == 42


async def test_an_altered_key_store_is_taken_at_the_next_start(tls: Any, tmp_path: Path) -> None:
    renewed = CA.issue()
    async with tls() as running, await tls_connect(running.port, client_context(CA)) as client:
        location = {"listener.name.ssl.ssl.keystore.location": renewed.pem(tmp_path / "new.pem")}
        assert (await alter(client, location)).error_code == 0
    async with tls() as running:
        assert await serial(running.port) == renewed.certificate.serial_number


async def test_a_key_store_in_the_settings(tls: Any) -> None:
    texts = {"ssl_keystore_key": BROKER.key_pem("secret"), "ssl_keystore_certificate_chain": BROKER.chain_pem()}
    async with tls(ssl_keystore_location="", ssl_key_password="secret", **texts) as running:
        assert await serial(running.port) == BROKER.certificate.serial_number


async def test_a_start_with_a_bad_key_store_is_refused(tls: Any, tmp_path: Path) -> None:
    encrypted = BROKER.pem(tmp_path / "encrypted.pem", "right")
    with pytest.raises(BaseExceptionGroup) as failed:
        async with tls(ssl_keystore_location=encrypted, ssl_key_password="wr0ng"):
            pass
    (error,) = leaves(failed.value)
    assert isinstance(error, ConfigError)
    assert str(error).startswith(f"Listener SSL: ssl.keystore.location={encrypted}: its private key cannot be read")
    assert "wr0ng" not in str(error)
