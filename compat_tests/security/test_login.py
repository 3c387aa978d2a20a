"""Real clients log in: each family by each mechanism that it knows, with the right password and with a wrong one."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from compat_tests.broker_process import Barnabas
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.driver import NotApplicable
from compat_tests.java import tools
from compat_tests.security.certificates import Authority
from compat_tests.security.clients import FAMILIES, JAAS, NotLetIn, Security
from compat_tests.tools import missing

PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
pytestmark = pytest.mark.one_node("it finds the ports of three listeners of one node")

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PASSWORD = "a pass=word1"


class Locked(Barnabas):
    """A broker with three listeners: one without a login, one with a login, and one with a login over TLS."""

    ports: dict[str, int]
    ca = Path()

    def see(self, line: str) -> None:
        found = re.findall(r"127\.0\.0\.1:(\d+)", line)
        if "is ready on" in line:
            self.ports = dict(zip(("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"), map(int, found), strict=True))
        super().see(line)

    def at(self, protocol: str) -> str:
        return f"localhost:{self.ports[protocol]}"


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory, key: rsa.RSAPrivateKey) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("locked")
    jwks = folder / "jwks"
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    jwks.write_text(json.dumps({"keys": [public | {"kid": "k"}]}))
    authority = Authority()
    users = f'{JAAS["PLAIN"]} required user_alice="{PASSWORD}";'
    settings = {
        "listeners": ",".join(f"{each}://127.0.0.1:0" for each in PROTOCOLS),
        "advertised.listeners": ",".join(f"{each}://localhost:0" for each in PROTOCOLS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue().pem(folder / "broker.pem"),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **{f"listener.name.{each.lower()}.plain.sasl.jaas.config": users for each in PROTOCOLS[1:]},
        "sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
    }
    broker = Locked(folder, settings)
    broker.ca = Path(authority.trust_pem(folder / "ca.pem"))
    with broker:
        if not missing("java"):
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                made = tools.run(
                    tools.CONFIGS,
                    *(
                        "--bootstrap-server",
                        broker.address,
                        "--alter",
                        "--entity-type",
                        "users",
                        "--entity-name",
                        "alice",
                    ),
                    *("--add-config", f"{mechanism}=[iterations=4096,password={PASSWORD}]"),
                )
                assert made.returncode == 0, made.stderr
        yield broker


def security(mechanism: str, key: rsa.RSAPrivateKey, folder: Path) -> Security:
    if mechanism != "OAUTHBEARER":
        return Security(mechanism, "alice", PASSWORD)
    file = folder / "token"
    now = int(time.time())
    file.write_text(
        jwt.encode({"sub": "alice", "iat": now, "exp": now + 3600, "scope": "x"}, key, "RS256", {"kid": "k"})
    )
    return Security(mechanism, token=file)


#: Each listener and each kind of mechanism once; all other pairs with all clients take long.
QUICK = {("SASL_PLAINTEXT", "SCRAM-SHA-256"), ("SASL_SSL", "PLAIN")}
PAIRS = [
    pytest.param(protocol, mechanism, marks=() if (protocol, mechanism) in QUICK else pytest.mark.long)
    for protocol in PROTOCOLS[1:]
    for mechanism in MECHANISMS
]


@pytest.mark.parametrize(("protocol", "mechanism"), PAIRS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_client_that_logs_in_is_served(
    locked: Locked, key: rsa.RSAPrivateKey, tmp_path: Path, family: str, mechanism: str, protocol: str
) -> None:
    round_trip, tool = FAMILIES[family]
    if tool and (reason := missing(tool)):
        pytest.skip(reason)
    topic = f"{family}-{mechanism}-{protocol}"
    ConfluentDriver(locked.address).create_topic(topic)
    right = replace(security(mechanism, key, tmp_path), ca=locked.ca if protocol == "SASL_SSL" else None)
    try:
        assert round_trip(locked.at(protocol), right, topic, b"value", tmp_path) == b"value"
    except NotApplicable as reason:
        pytest.skip(f"n/a: {reason}")
    if family == "java":
        return
    wrong = replace(right, password="wrong", is_wrong=True)
    if wrong.token is not None:
        wrong.token.write_text(jwt.encode({"sub": "alice"}, rsa.generate_private_key(65537, 2048), "RS256"))
    with pytest.raises(NotLetIn):
        round_trip(locked.at(protocol), wrong, topic, b"value", tmp_path)
