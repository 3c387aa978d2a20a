"""The secret of the streams driver: each broker process makes one, in a file that only the broker's user can read.

The driver reads the data directory anyway, on whichever machine it runs. So it can read the file there, and a client
that has only a connection cannot. The driver sends the secret as part of its transactional id. Each start makes a new
secret, and older ones are no longer valid. See decision 13. The transactional ids of streams are the secret, a slash,
and a name.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from barnabas.broker.security.driver_certificate import DriverCertificate
from barnabas.broker.settings.listeners import Protocol
from barnabas.wire import driver_login
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.queries.writer import PROPERTIES_FILE, SECRET_FILE, WRITER_ID


class DriverSecret:
    """The secret of this process."""

    def __init__(self, data_dir: Path, *, is_made: bool = False) -> None:
        """Make a new secret, unless a supervisor has made it for all its nodes. Raises OSError."""
        self._data_dir = data_dir
        if is_made:
            self.writer_id = (data_dir / SECRET_FILE).read_text()
            return
        self.writer_id = f"{WRITER_ID}:{secrets.token_hex(32)}"
        self._write(SECRET_FILE, self.writer_id)

    def _write(self, name: str, text: str) -> None:
        made = self._data_dir / f"{name}.new"
        made.unlink(missing_ok=True)
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
        made.replace(self._data_dir / name)

    def tell_how(self, protocol: Protocol, certificates: str = "", own: DriverCertificate | None = None) -> None:
        """Write a `client.properties` with which the driver connects to a listener. `certificates` are the listener's;
        the driver trusts only these. `own` is the driver's, if the listener asks for one. Raises OSError."""
        lines = [
            f"security.protocol={'SASL_SSL' if protocol.is_encrypted else 'SASL_PLAINTEXT'}",
            f"sasl.mechanism={driver_login.MECHANISM}",
            f"{driver_login.SECRET_FILE}={SECRET_FILE}",
        ]
        if protocol.is_encrypted:
            lines += [
                "ssl.endpoint.identification.algorithm=",
                "ssl.truststore.type=PEM",
                "ssl.truststore.certificates=" + certificates.replace("\n", "\\n"),
            ]
        if own is not None:
            lines += [
                "ssl.keystore.type=PEM",
                "ssl.keystore.key=" + own.key.replace("\n", "\\n"),
                "ssl.keystore.certificate.chain=" + own.certificate.replace("\n", "\\n"),
            ]
        self._write(PROPERTIES_FILE, "\n".join(lines) + "\n")

    def proves(self, transactional_id: str | None) -> bool:
        """Whether the sender of this id is the driver."""
        return transactional_id is not None and hmac.compare_digest(
            transactional_id.encode(errors="replace"), self.writer_id.encode()
        )

    def is_claimed(self, transactional_id: str) -> bool:
        """Whether the id looks like a driver's but has no valid secret. No other client may use such ids."""
        return transactional_id.startswith(WRITER_ID) and not self.proves(transactional_id.partition("/")[0])

    def named(self, transactional_id: str) -> str:
        """The id as the coordinator knows it: for a stream, the name without the secret before it.

        Raises KafkaError TRANSACTIONAL_ID_AUTHORIZATION_FAILED for an id of the driver with a wrong secret.
        """
        if not transactional_id.startswith(WRITER_ID):
            return transactional_id
        secret, _, name = transactional_id.partition("/")
        if not name or not self.proves(secret):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return f"{WRITER_ID}/{name}"
