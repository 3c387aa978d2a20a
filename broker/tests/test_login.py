"""Logins with PLAIN, SCRAM and delegation tokens, repeated logins on a connection, and clients without the password."""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.broker.clock import Clock
from barnabas.broker.node import Node
from barnabas.broker.security.principals import ANONYMOUS, DRIVER, Principal
from barnabas.broker.security.sasl import Login
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.tests.client import Client, connect, frame_of
from barnabas.broker.tests.conftest import Running, Start, until
from barnabas.broker.tests.sasl_client import ScramClient, add_user, choose, log_in_plain, token, upsertion
from barnabas.broker.tests.test_operator import FullDisk
from barnabas.wire import driver_login
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from barnabas.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from barnabas.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest

PLAIN_USERS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob="bob,secret";'
)
PREFIX = "listener.name.sasl_plaintext"
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}.plain.sasl.jaas.config": PLAIN_USERS,
    "connection.failed.authentication.delay.ms": "1",
    "delegation.token.secret.key": "the key of tokens",
}


class TestClock(Clock):
    """A clock that the test moves."""

    __test__ = False

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


@asynccontextmanager
async def stranger(broker: Running) -> AsyncIterator[Client]:
    """A client of the listener that requires a login."""
    async with await connect(broker.port_of("SASL_PLAINTEXT")) as client:
        yield client


def principals(broker: Running) -> set[Principal]:
    return {each.principal for each in broker.node.connections} - {ANONYMOUS}


async def is_served(client: Client) -> bool:
    return not (await client.ask(MetadataRequest(topics=[]))).topics


# --- mechanisms -------------------------------------------------------------------------------------------------------


async def test_plain(start: Start) -> None:
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        assert (await client.ask(ApiVersionsRequest("t", "1"), 3)).error_code == 0
        answer = await log_in_plain(client, "bob", "bob,secret", authzid="bob")
        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
        assert principals(broker) == {Principal("User", "bob")}
        assert await is_served(client)
        assert "principal=User:bob" in broker.log
        assert "secret" not in broker.log


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram(start: Start, mechanism: str) -> None:
    async with start(more=SETTINGS) as broker, await broker.client() as admin, stranger(broker) as client:
        await add_user(admin, "carol,=ü", "pass,wörd", mechanism)
        answer = await ScramClient("carol,=ü", "pass,wörd", mechanism).log_in(client)
        assert answer.error_code == 0
        assert principals(broker) == {Principal("User", "carol,=ü")}
        assert await is_served(client)


async def test_credentials_outlive_a_kill_and_a_snapshot(start: Start) -> None:
    async with start(more=SETTINGS) as broker, await broker.client() as admin:
        await add_user(admin, "carol", "before")
        await add_user(admin, "dave", "gone")
        await broker.node.metadata_snapshots.take()
        await add_user(admin, "carol", "after")
        gone = AlterUserScramCredentialsRequest([ScramCredentialDeletion("dave", 1)])
        assert (await admin.ask(gone)).results[0].error_code == 0
    async with start(more=SETTINGS) as broker:
        for user, password, code in [
            ("carol", "after", ErrorCode.NONE),
            ("carol", "before", ErrorCode.SASL_AUTHENTICATION_FAILED),
            ("dave", "gone", ErrorCode.SASL_AUTHENTICATION_FAILED),
        ]:
            async with stranger(broker) as client:
                assert (await ScramClient(user, password).log_in(client)).error_code == code


async def test_bare_tokens_after_the_first_version_of_handshake(start: Start) -> None:
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        assert (await choose(client, "PLAIN", version=0)).error_code == 0
        data = b"\0alice\0alice-secret"
        await client.send_bytes(struct.pack(">i", len(data)) + data)
        assert await client.receive_frame() == b""
        assert await is_served(client)


async def test_bare_tokens_that_prove_nothing_are_not_answered(start: Start) -> None:
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        assert (await choose(client, "PLAIN", version=0)).error_code == 0
        data = b"\0alice\0wrong"
        await client.send_bytes(struct.pack(">i", len(data)) + data)
        assert await client.is_closed()


# --- those who may not ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\0alice\0wrong",
        b"\0nobody\0alice-secret",
        b"bob\0alice\0alice-secret",
        b"\0\0alice-secret",
        b"\0alice\0",
        b"\0alice",
        b"\0alice\0alice-secret\0",
        b"\xff\0alice\0alice-secret",
        b"",
        "\0al\u0131ce\0alice-secret".encode(),
        "\0ａlice\0alice-secret".encode(),
    ],
)
async def test_what_plain_refuses(start: Start, data: bytes) -> None:
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        assert (await choose(client, "PLAIN")).error_code == 0
        answer = await token(client, data)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message.startswith("Authentication failed")
        assert await client.is_closed()
        assert principals(broker) == set()
        assert "login.failed" in broker.log


async def test_a_name_that_nobody_has_is_answered_like_one_that_somebody_has(start: Start) -> None:
    async with start(more=SETTINGS) as broker, await broker.client() as admin:
        await admin.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion("carol", "secret", iterations=8192)]))
        first: dict[str, list[bytes]] = {}
        last = {}
        for user in ("carol", "nobody", "carol", "nobody"):
            async with stranger(broker) as client:
                login = ScramClient(user, "wrong")
                await choose(client, login.mechanism)
                answer = await token(client, login.first)
                first.setdefault(user, []).append(answer.auth_bytes.partition(b",")[2])
                last[user] = await token(client, login.final(answer.auth_bytes))
        assert first["nobody"][0] == first["nobody"][1] != first["carol"][0] == first["carol"][1]
        assert len(first["nobody"][0]) == len(first["carol"][0])
        assert first["nobody"][0].endswith(b"i=8192")
        assert last["carol"] == last["nobody"]


async def test_what_scram_refuses(start: Start) -> None:
    """A server nonce that is replaced or shortened, a changed header, channel binding, and an old proof."""
    async with start(more=SETTINGS) as broker, await broker.client() as admin:
        await add_user(admin, "carol", "secret")

        async def refused(change: bytes, to: bytes, gs2: str = "n,,") -> bool:
            async with stranger(broker) as client:
                login = ScramClient("carol", "secret")
                await choose(client, login.mechanism)
                answer = await token(client, login.first)
                final = login.final(answer.auth_bytes, gs2)
                assert change in final
                answer = await token(client, final.replace(change, to))
                assert answer.error_code in (0, ErrorCode.SASL_AUTHENTICATION_FAILED)
                assert (await client.is_closed()) if answer.error_code else await is_served(client)
                return bool(answer.error_code)

        assert not await refused(b"", b"")
        assert await refused(b"r=client-nonce", b"r=client-nonceX")
        assert await refused(b",r=client", b",x=1,r=client")
        assert await refused(b"", b"", gs2="y,,")
        assert await refused(b"p=", b"p=AAAA")
        async with stranger(broker) as client:
            await choose(client, "SCRAM-SHA-256")
            assert (await token(client, b"p=tls-unique,,n=carol,r=nonce")).error_code
        async with stranger(broker) as client:
            await choose(client, "SCRAM-SHA-256")
            assert (await token(client, b"n,a=dave,n=carol,r=nonce")).error_code
        assert principals(broker) == set()


async def test_a_mechanism_that_is_not_served(start: Start) -> None:
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        answer = await choose(client, "GSSAPI")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert await client.is_closed()


@pytest.mark.parametrize(
    "requests",
    [
        [MetadataRequest(topics=[])],
        [SaslAuthenticateRequest(b"\0alice\0alice-secret")],
        [SaslHandshakeRequest("PLAIN"), MetadataRequest(topics=[])],
        [SaslHandshakeRequest("PLAIN"), SaslHandshakeRequest("PLAIN")],
        [SaslHandshakeRequest("PLAIN"), SaslAuthenticateRequest(b"\0alice\0wrong"), MetadataRequest(topics=[])],
        [SaslHandshakeRequest("GSSAPI"), MetadataRequest(topics=[])],
    ],
)
async def test_a_stranger_is_answered_nothing_else(start: Start, requests: list[object]) -> None:
    """This holds also if all requests are sent at once: the last one gets no answer."""
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        versions = {"SaslHandshakeRequest": 1}
        for request in requests:
            await client.send(request, versions.get(type(request).__name__))  # type: ignore[arg-type]
        for _ in requests[:-1]:
            await client.receive()
        assert await client.is_closed()


async def test_what_follows_a_login_waits_for_it(start: Start) -> None:
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        await client.send(SaslHandshakeRequest("PLAIN"), 1)
        await client.send(SaslAuthenticateRequest(b"\0alice\0alice-secret"))
        await client.send(MetadataRequest(topics=[]))
        assert (await client.receive()).error_code == 0
        assert (await client.receive()).error_code == 0
        assert not (await client.receive()).topics


async def test_strangers_send_small_requests_only(start: Start) -> None:
    async with start(more=SETTINGS | {"sasl.server.max.receive.size": "1000"}) as broker:
        async with stranger(broker) as client:
            await client.send_bytes(struct.pack(">i", 1001))
            assert await client.is_closed()
        async with stranger(broker) as client:
            assert (await log_in_plain(client, "alice", "alice-secret")).error_code == 0
            assert len(frame_of(MetadataRequest(topics=[]), 12, client_id="c" * 2000)) > 1001
            await client.send_bytes(frame_of(MetadataRequest(topics=[]), 12, client_id="c" * 2000))
            assert await client.receive_frame()


async def test_who_does_not_log_in_has_to_go(start: Start) -> None:
    settings = SETTINGS | {"barnabas.login.timeout.ms": "100"}
    async with start(more=settings) as broker, stranger(broker) as known, stranger(broker) as client:
        assert (await log_in_plain(known, "alice", "alice-secret")).error_code == 0
        assert (await choose(client, "PLAIN")).error_code == 0
        assert await client.is_closed()
        assert "barnabas.login.timeout.ms" in broker.log
        assert await is_served(known)


async def test_nobody_logs_in_where_nobody_has_to(start: Start) -> None:
    async with start(more=SETTINGS) as broker, await broker.client() as client:
        assert (await choose(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await token(client, b"\0alice\0alice-secret")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_served(client)
        assert principals(broker) == set()


async def test_a_name_forges_no_line_of_the_log(start: Start) -> None:
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        assert (await choose(client, "PLAIN")).error_code == 0
        await token(client, b"\0eve\nlevel=info event=login principal=User:admin\0x")
        assert not [line for line in broker.log.splitlines() if line.startswith("level=info event=login")]
        assert sum("login.failed" in line for line in broker.log.splitlines()) == 1


# --- again ------------------------------------------------------------------------------------------------------------


def is_over(login: Login) -> None:
    """Make a login look as if its time had just passed."""
    login._ends, login._began = trio.current_time() - 1, None


LIMITED = SETTINGS | {f"{PREFIX}.plain.connections.max.reauth.ms": "60000"}


async def test_a_login_lasts_as_long_as_it_may(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(more=LIMITED) as broker, stranger(broker) as client:
        answer = await log_in_plain(client, "alice", "alice-secret")
        assert answer.session_lifetime_ms == 60_000
        (connection,) = broker.node.connections
        assert connection.login is not None
        is_over(connection.login)
        # Only a new login is accepted.
        answer = await log_in_plain(client, "alice", "alice-secret")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
        assert await is_served(client)
        is_over(connection.login)
        await client.send(MetadataRequest(topics=[]))
        assert await client.is_closed()
        assert "has to log in again" in broker.log


async def test_who_logs_in_anew_stays_who_it_is(start: Start) -> None:
    async with start(more=LIMITED) as broker, stranger(broker) as client:
        assert (await log_in_plain(client, "alice", "alice-secret")).error_code == 0
        answer = await log_in_plain(client, "bob", "bob,secret")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals during re-authentication from User.alice: User.bob" in answer.error_message
        assert await client.is_closed()


async def test_who_logs_in_anew_keeps_to_the_mechanism(start: Start) -> None:
    async with start(more=LIMITED) as broker, await broker.client() as admin, stranger(broker) as client:
        await add_user(admin, "alice", "alice-secret")
        assert (await log_in_plain(client, "alice", "alice-secret")).error_code == 0
        assert (await choose(client, "SCRAM-SHA-256")).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert await client.is_closed()


async def test_a_login_anew_is_for_sessions_that_end_and_not_for_every_moment(start: Start) -> None:
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        assert (await log_in_plain(client, "alice", "alice-secret")).error_code == 0
        assert (await choose(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_served(client)


# --- the driver -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SASL_PLAINTEXT"])
async def test_the_driver_logs_in_on_every_listener(start: Start, listener: str) -> None:
    async with start(more=SETTINGS) as broker, await connect(broker.port_of(listener)) as client:
        login = ScramClient(driver_login.NAME, broker.node.queries.secret.writer_id)
        answer = await login.log_in(client, driver_login.MECHANISM)
        assert answer.error_code == 0
        assert principals(broker) == {DRIVER}
        assert await is_served(client)


async def test_who_does_not_know_the_secret_is_not_the_driver(start: Start) -> None:
    async with start(more=SETTINGS) as broker, await broker.client() as client:
        login = ScramClient(driver_login.NAME, "guessed")
        assert (await login.log_in(client, driver_login.MECHANISM)).error_code
        assert await client.is_closed()
        async with stranger(broker) as other:
            assert driver_login.MECHANISM not in (await choose(other, "X")).mechanisms


# --- delegation tokens ------------------------------------------------------------------------------------------------


async def test_the_life_of_a_token(start: Start) -> None:
    clock = TestClock()
    settings = SETTINGS | {"delegation.token.expiry.time.ms": "1000000", "delegation.token.max.lifetime.ms": "5000000"}
    async with start(more=settings, clock=clock) as broker, stranger(broker) as alice, stranger(broker) as bob:
        await log_in_plain(alice, "alice", "alice-secret")
        await log_in_plain(bob, "bob", "bob,secret")
        renewers = [CreatableRenewers("User", "bob")]
        made = await alice.ask(CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1))
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "alice", "alice")
        assert made.expiry_timestamp_ms - made.issue_timestamp_ms == 1_000_000
        assert made.max_timestamp_ms - made.issue_timestamp_ms == 5_000_000

        async def log_in(secret: bytes = made.hmac) -> int:
            async with stranger(broker) as client:
                login = ScramClient(made.token_id, base64.b64encode(secret).decode(), tokenauth="true")
                answer = await login.log_in(client)
                if answer.error_code == 0:
                    assert 0 < answer.session_lifetime_ms <= 5_000_000
                    assert Principal("User", "alice") in principals(broker)
                    # With a token, a client cannot create another one.
                    code = (await client.ask(CreateDelegationTokenRequest())).error_code
                    assert code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
                return int(answer.error_code)

        assert await log_in() == 0
        assert await log_in(b"wrong") == ErrorCode.SASL_AUTHENTICATION_FAILED
        seen = await bob.ask(DescribeDelegationTokenRequest(owners=None))
        assert [(t.token_id, t.hmac, t.renewers[0].principal_name) for t in seen.tokens] == [
            (made.token_id, made.hmac, "bob")
        ]
        clock.ahead_ms = 900_000
        renewed = await bob.ask(RenewDelegationTokenRequest(made.hmac, 10_000_000))
        assert renewed.error_code == 0
        assert renewed.expiry_timestamp_ms > made.expiry_timestamp_ms + 500_000
        clock.ahead_ms = 1_500_000
        assert await log_in() == 0
        clock.ahead_ms = 2_500_000
        assert await log_in() == ErrorCode.SASL_AUTHENTICATION_FAILED
        expired = await bob.ask(RenewDelegationTokenRequest(made.hmac, 1000))
        assert expired.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        await broker.node.authentication.remove_expired()
        assert broker.node.metadata.tokens.by_id == {}
        gone = await bob.ask(RenewDelegationTokenRequest(made.hmac, 1000))
        assert gone.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_a_token_is_its_owners(start: Start) -> None:
    async with start(more=SETTINGS) as broker, stranger(broker) as alice, stranger(broker) as bob:
        await log_in_plain(alice, "alice", "alice-secret")
        await log_in_plain(bob, "bob", "bob,secret")
        made = await alice.ask(CreateDelegationTokenRequest())
        for request in (RenewDelegationTokenRequest(made.hmac, 1), ExpireDelegationTokenRequest(made.hmac, -1)):
            assert (await bob.ask(request)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        for request in (RenewDelegationTokenRequest(b"guessed", 1), ExpireDelegationTokenRequest(b"guessed", -1)):
            assert (await alice.ask(request)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        nobodys = [DescribeDelegationTokenOwner("User", "carol")]
        assert (await alice.ask(DescribeDelegationTokenRequest(owners=nobodys))).tokens == []
        assert (await alice.ask(ExpireDelegationTokenRequest(made.hmac, -1))).error_code == 0
        assert (await alice.ask(DescribeDelegationTokenRequest(owners=None))).tokens == []
        assert made.hmac.hex() not in broker.log


async def test_tokens_outlive_a_restart_and_another_secret_opens_nothing(start: Start) -> None:
    async with start(more=SETTINGS) as broker, stranger(broker) as alice:
        await log_in_plain(alice, "alice", "alice-secret")
        made = await alice.ask(CreateDelegationTokenRequest())
        await broker.node.metadata_snapshots.take()
    for secret, code in [("the key of tokens", 0), ("another", ErrorCode.SASL_AUTHENTICATION_FAILED)]:
        async with start(more=SETTINGS | {"delegation.token.secret.key": secret}) as broker, stranger(broker) as client:
            login = ScramClient(made.token_id, base64.b64encode(made.hmac).decode(), tokenauth="true")
            assert (await login.log_in(client)).error_code == code


async def test_without_a_secret_there_are_no_tokens(start: Start) -> None:
    settings = {key: value for key, value in SETTINGS.items() if key != "delegation.token.secret.key"}
    async with start(more=settings) as broker, stranger(broker) as alice, await broker.client() as nobody:
        await log_in_plain(alice, "alice", "alice-secret")
        answers = [
            await alice.ask(CreateDelegationTokenRequest()),
            await alice.ask(DescribeDelegationTokenRequest(owners=None)),
            await alice.ask(RenewDelegationTokenRequest(b"h", 1)),
        ]
        assert {each.error_code for each in answers} == {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED}
        refused = await nobody.ask(CreateDelegationTokenRequest())
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


# --- users ------------------------------------------------------------------------------------------------------------


async def test_what_alter_user_scram_credentials_refuses(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await add_user(client, "carol", "secret")
        good = upsertion("dave", "secret")
        request = AlterUserScramCredentialsRequest(
            [ScramCredentialDeletion("carol", 2), ScramCredentialDeletion("", 1), ScramCredentialDeletion("erin", 9)],
            [
                ScramCredentialUpsertion("few", 1, 4095, b"s", b"p"),
                ScramCredentialUpsertion("many", 1, 16385, b"s", b"p"),
                good,
                upsertion("twice", "a"),
                upsertion("twice", "b"),
                upsertion("n" * 1001, "a"),
            ],
        )
        answer = await client.ask(request)
        assert {each.user[:10]: each.error_code for each in answer.results} == {
            "carol": ErrorCode.RESOURCE_NOT_FOUND,
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "erin": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "dave": ErrorCode.NONE,
            "twice": ErrorCode.DUPLICATE_RESOURCE,
            "n" * 10: ErrorCode.UNACCEPTABLE_CREDENTIAL,
        }
        assert set(broker.node.metadata.credentials.of) == {"carol", "dave"}
        everybody = await client.ask(DescribeUserScramCredentialsRequest(users=None))
        assert {(each.user, each.credential_infos[0].iterations) for each in everybody.results} == {
            ("carol", 4096),
            ("dave", 4096),
        }
        asked = [UserName("carol"), UserName("erin"), UserName("dave"), UserName("dave")]
        some = await client.ask(DescribeUserScramCredentialsRequest(users=asked))
        assert {each.user: each.error_code for each in some.results} == {
            "carol": ErrorCode.NONE,
            "erin": ErrorCode.RESOURCE_NOT_FOUND,
            "dave": ErrorCode.DUPLICATE_RESOURCE,
        }


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "GSSAPI"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "PLAIN has no users"),
        ({"sasl.enabled.mechanisms": "PLAIN", f"{PREFIX}.plain.sasl.jaas.config": "x required;"}, "is not known"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "sasl.oauthbearer.jwks.endpoint.url"),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                f"{PREFIX}.plain.sasl.jaas.config": PLAIN_USERS.replace("plain.Plain", "scram.Scram"),
            },
            "login module of SCRAM",
        ),
    ],
)
def test_a_listener_that_nobody_could_log_in_to_is_refused(
    settings: dict[str, str], reason: str, tmp_path: object
) -> None:
    listeners = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "log.dir": str(tmp_path)}

    async def run() -> None:
        await Node(BrokerConfig(listeners | settings)).run()

    with pytest.raises(BaseException) as refused:
        trio.run(run)
    found: list[BaseException] = [refused.value]
    while isinstance(found[0], BaseExceptionGroup):
        found = list(found[0].exceptions)
    assert isinstance(found[0], ConfigError)
    assert reason in str(found[0])
    assert "alice-secret" not in str(found[0])


async def test_a_client_that_has_logged_in_is_one_wherever_it_comes_from(start: Start) -> None:
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        await log_in_plain(client, "alice", "alice-secret")
        (connection,) = broker.node.connections
        assert connection.client == "User:alice"
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        await until(lambda: len(broker.node.connections) == 1)
        (connection,) = broker.node.connections
        assert connection.client == "127.0.0.1"
        await log_in_plain(client, "alice", "alice-secret")
        assert connection.client == "User:alice"


async def test_a_user_of_plain_is_added_while_the_broker_runs(start: Start) -> None:
    async with start(more=SETTINGS) as broker, await broker.client() as admin:
        name = f"{PREFIX}.plain.sasl.jaas.config"
        text = PLAIN_USERS.replace(";", ' user_carol="hunter2";')

        async def alter(value: str) -> int:
            change = AlterConfigsResource(4, str(broker.node.identity.node_id), [AlterableConfig(name, 0, value)])
            return int((await admin.ask(IncrementalAlterConfigsRequest([change]))).responses[0].error_code)

        async def carol() -> int:
            async with stranger(broker) as client:
                return int((await log_in_plain(client, "carol", "hunter2")).error_code)

        assert await carol() == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await alter("evil.Module required;") != 0
        assert await carol() == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await alter(text) == 0
        assert await carol() == 0
        asked = DescribeConfigsRequest([DescribeConfigsResource(4, str(broker.node.identity.node_id), None)], True)
        told = await admin.ask(asked)
        assert "hunter2" not in repr(told)
        assert "hunter2" not in broker.log
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        assert (await log_in_plain(client, "carol", "hunter2")).error_code == 0


@pytest.mark.parametrize("name", ["User:alice", "alice,bob", "alice;User:bob", "ALICE", "alice ", "Driver:streams"])
async def test_a_name_is_nobody_elses(start: Start, name: str) -> None:
    async with start(more=SETTINGS) as broker, await broker.client() as admin, stranger(broker) as client:
        await add_user(admin, name, "secret")
        assert (await ScramClient(name, "secret").log_in(client)).error_code == 0
        (principal,) = principals(broker)
        assert principal == Principal("User", name)
        assert principal not in (Principal("User", "alice"), Principal("User", "bob"), DRIVER)


async def test_a_full_disk_keeps_users_and_tokens_as_they_are(start: Start) -> None:
    """The metadata log cannot be written, so changes get an error. Existing users can still log in."""
    disk = FullDisk("__cluster_metadata-0")
    async with start(io_calls=disk, more=SETTINGS) as broker, await broker.client() as admin, stranger(broker) as alice:
        await log_in_plain(alice, "alice", "alice-secret")
        await add_user(admin, "carol", "before")
        disk.full = True
        changed = AlterUserScramCredentialsRequest(upsertions=[upsertion("carol", "after"), upsertion("dave", "new")])
        assert {each.error_code for each in (await admin.ask(changed)).results} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert (await alice.ask(CreateDelegationTokenRequest())).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.node.metadata.tokens.by_id == {}
        async with stranger(broker) as client:
            assert (await ScramClient("carol", "before").log_in(client)).error_code == 0
        disk.full = False
        assert {each.error_code for each in (await admin.ask(changed)).results} == {0}
        assert (await alice.ask(CreateDelegationTokenRequest())).error_code == 0
    async with start(more=SETTINGS) as broker, stranger(broker) as client:
        assert (await ScramClient("carol", "after").log_in(client)).error_code == 0
        assert len(broker.node.metadata.tokens.by_id) == 1


async def test_users_and_tokens_do_not_grow_for_ever(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.apis.alter_user_scram_credentials.MAX_USERS", 2)
    monkeypatch.setattr("barnabas.broker.apis.create_delegation_token.MAX_TOKENS", 1)
    async with start(more=SETTINGS) as broker, await broker.client() as admin, stranger(broker) as alice:
        await log_in_plain(alice, "alice", "alice-secret")
        wanted = AlterUserScramCredentialsRequest(upsertions=[upsertion(name, "p") for name in ("a", "b", "c")])
        codes = {each.user: each.error_code for each in (await admin.ask(wanted)).results}
        assert codes == {"a": 0, "b": 0, "c": ErrorCode.POLICY_VIOLATION}
        await add_user(admin, "a", "another")
        assert (await alice.ask(CreateDelegationTokenRequest())).error_code == 0
        assert (await alice.ask(CreateDelegationTokenRequest())).error_code == ErrorCode.POLICY_VIOLATION


async def test_a_user_that_is_made_again_has_nothing_of_the_one_before(start: Start) -> None:
    async with start(more=SETTINGS) as broker, await broker.client() as admin:
        await add_user(admin, "carol", "first", "SCRAM-SHA-512")
        await add_user(admin, "carol", "first")
        gone = [ScramCredentialDeletion("carol", 1), ScramCredentialDeletion("carol", 2)]
        assert (await admin.ask(AlterUserScramCredentialsRequest(gone))).results[0].error_code == 0
        await add_user(admin, "carol", "second")
        for password, mechanism, works in [
            ("second", "SCRAM-SHA-256", True),
            ("first", "SCRAM-SHA-256", False),
            ("first", "SCRAM-SHA-512", False),
        ]:
            async with stranger(broker) as client:
                answer = await ScramClient("carol", password, mechanism).log_in(client)
                assert (answer.error_code == 0) == works
