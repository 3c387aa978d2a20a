"""What the streams driver proves itself with: a secret of this process, in a file that only the broker's user can read.

The driver reads the data directory in any case, on whatever machine it runs. So a file there reaches it, and nobody who
only has a connection. It names the secret as part of its transactional id. Each start makes a new one: an old one opens
nothing. See decision 13. The transactional ids of streams have the secret, a slash, and a name.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

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

    def tell_how(self, protocol: Protocol, certificates: str = "") -> None:
        """Write down how the driver gets in at a listener, as a `client.properties`; `certificates` are those of the
        listener, which the driver trusts and no others. Raises OSError."""
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
        self._write(PROPERTIES_FILE, "\n".join(lines) + "\n")

    def proves(self, transactional_id: str | None) -> bool:
        """Whether who names this id is the driver."""
        return transactional_id is not None and hmac.compare_digest(
            transactional_id.encode(errors="replace"), self.writer_id.encode()
        )

    def is_claimed(self, transactional_id: str) -> bool:
        """Whether somebody who cannot prove it says to be a driver: such names are nobody else's."""
        return transactional_id.startswith(WRITER_ID) and not self.proves(transactional_id.partition("/")[0])

    def named(self, transactional_id: str) -> str:
        """The id under which the coordinator knows it: a stream's without the secret before its name.

        Raises KafkaError TRANSACTIONAL_ID_AUTHORIZATION_FAILED for an id of the driver's that is not proved.
        """
        if not transactional_id.startswith(WRITER_ID):
            return transactional_id
        secret, _, name = transactional_id.partition("/")
        if not name or not self.proves(secret):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return f"{WRITER_ID}/{name}"
