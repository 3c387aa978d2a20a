"""Logging in: what the client's side of SASL sends, whom it trusts, and which settings it accepts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.client import sasl
from barnabas.client.cluster import Cluster
from barnabas.client.command_config import VARIABLE
from barnabas.client.connection import Connection
from barnabas.client.errors import ClientError
from barnabas.client.sasl import LoginError
from barnabas.client.security import of_process, of_properties
from barnabas.client.tests.scripted import scripted
from barnabas.wire import scram
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.wire.types import Message

PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="alice" password="hunter2";',
}
SCRAM = {
    **PLAIN,
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="hunter2";',
}


class ScramBroker:
    """A broker that knows a password."""

    def __init__(self, password: str, **changes: Any) -> None:
        self._password, self._changes = password, changes
        self._first: scram.ClientFirst | None = None
        self._answer = ""

    def handshake(self, request: SaslHandshakeRequest) -> Message:
        return SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"])

    def authenticate(self, request: SaslAuthenticateRequest) -> Message:
        if self._first is None:
            self._first = scram.parse_client_first(request.auth_bytes)
            nonce = self._changes.get("nonce", self._first.nonce + "server")
            self._answer = scram.server_first(nonce, b"salt", self._changes.get("iterations", 4096))
            return SaslAuthenticateResponse(auth_bytes=self._answer.encode())
        final = scram.parse_client_final(request.auth_bytes)
        salted = scram.salted_password("SCRAM-SHA-256", self._password, b"salt", 4096)
        known = scram.credential("SCRAM-SHA-256", salted, b"salt", 4096)
        signed = scram.auth_message(self._first.bare, self._answer, final.bare)
        self._first = None
        signature = scram.server_signature("SCRAM-SHA-256", known.server_key, signed)
        if not scram.is_proved("SCRAM-SHA-256", known, signed, final.proof) and not self._changes.get("is_false"):
            return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")
        lifetime = self._changes.get("lifetime", 0)
        return SaslAuthenticateResponse(auth_bytes=scram.server_final(signature).encode(), session_lifetime_ms=lifetime)

    @property
    def play(self) -> dict[type[Message], Callable[[Any], Message | None]]:
        return {
            SaslHandshakeRequest: self.handshake,
            SaslAuthenticateRequest: self.authenticate,
            FindCoordinatorRequest: lambda _: FindCoordinatorResponse(),
        }


def test_plain() -> None:
    play = {
        SaslHandshakeRequest: lambda _: SaslHandshakeResponse(mechanisms=["PLAIN"]),
        SaslAuthenticateRequest: lambda _: SaslAuthenticateResponse(),
    }
    with scripted(play) as broker:
        Connection(broker.address, of_properties(PLAIN)).close()
    assert broker.requests[1:] == [SaslHandshakeRequest("PLAIN"), SaslAuthenticateRequest(b"\0alice\0hunter2")]


def test_scram() -> None:
    with scripted(ScramBroker("hunter2").play) as broker:
        Connection(broker.address, of_properties(SCRAM)).close()
    assert b"hunter2" not in b"".join(r.auth_bytes for r in broker.requests if isinstance(r, SaslAuthenticateRequest))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"password": "other"}, "refuses the login: no"),
        ({"password": "other", "is_false": True}, "the broker does not know the password"),
        ({"nonce": "mine"}, "the nonce is not ours"),
        ({"iterations": 1}, "1 iterations are asked for"),
        ({"iterations": 100_000_000}, "100000000 iterations are asked for"),
    ],
)
def test_a_broker_that_cannot_be_trusted(changes: dict[str, Any], reason: str) -> None:
    play = ScramBroker(changes.pop("password", "hunter2"), **changes).play
    with scripted(play) as broker, pytest.raises(LoginError, match=reason) as refused:
        Connection(broker.address, of_properties(SCRAM))
    assert "hunter2" not in str(refused.value)


def test_a_mechanism_that_the_broker_does_not_take() -> None:
    refused = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["OAUTHBEARER"])
    told = "does not take logins by PLAIN; its mechanisms: OAUTHBEARER"
    with scripted({SaslHandshakeRequest: lambda _: refused}) as broker, pytest.raises(LoginError, match=told):
        Cluster(str(broker.address), security=of_properties(PLAIN))


def test_a_login_is_renewed_on_the_same_connection() -> None:
    with scripted(ScramBroker("hunter2", lifetime=1).play) as broker:
        connection = Connection(broker.address, of_properties(SCRAM))
        while broker.asked(SaslHandshakeRequest) < 3:
            connection.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, version=3)
        connection.close()
    assert broker.connections == 1


def test_a_token_that_is_refused() -> None:
    login = sasl.oauthbearer("tok")
    assert next(login) == b"n,,\x01auth=Bearer tok\x01\x01"
    assert login.send(b'{"status": "invalid_token"}') == b"\x01"
    with pytest.raises(LoginError, match="refuses the token invalid_token"):
        login.send(b"")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI"),
        ({"sasl.mechanism": ""}, "sasl.mechanism is missing"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "sasl.jaas.config is for PLAIN"),
        ({"sasl.jaas.config": ""}, "needs sasl.jaas.config"),
        ({"sasl.jaas.config": "x.Y required password=hunter2;"}, "Invalid sasl.jaas.config"),
        ({"sasl.jaas.config": PLAIN["sasl.jaas.config"].replace("username", "user")}, "has no username"),
    ],
)
def test_settings_that_cannot_be_used(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(ClientError, match=reason) as refused:
        of_properties(PLAIN | changes)
    assert "hunter2" not in str(refused.value)


def test_a_token_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("tok\n")
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    begin = of_properties(properties).begin
    assert begin is not None
    assert next(begin()) == b"n,,\x01auth=Bearer tok\x01\x01"


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in PLAIN.items()))
    monkeypatch.setenv(VARIABLE, str(file))
    assert of_process().mechanism == "PLAIN"
    file.unlink()
    with pytest.raises(ClientError, match="Cannot read"):
        of_process()
    monkeypatch.delenv(VARIABLE)
    assert of_process().begin is None


def test_the_driver_takes_the_secret_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file stays, and the broker writes a new secret at each start."""
    file = tmp_path / "driver.properties"
    file.write_text("security.protocol=PLAINTEXT\nsasl.mechanism=BARNABAS-DRIVER\nbarnabas.driver.secret.file=secret\n")
    monkeypatch.setenv(VARIABLE, str(file))
    begin = of_process().begin
    assert begin is not None
    with pytest.raises(ClientError, match="Cannot read the driver's secret"):
        next(begin())
    (tmp_path / "secret").write_text("s")
    assert next(begin()).startswith(b"n,,n=driver,r=")


def test_json_that_is_no_status_is_no_traceback() -> None:
    for answer in (b"[]", b"7", json.dumps({"status": ["x"]}).encode(), b"\xff"):
        login = sasl.oauthbearer("tok")
        next(login)
        login.send(answer)
        with pytest.raises(LoginError):
            login.send(b"")
