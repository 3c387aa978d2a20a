"""What the streams driver proves itself with: a secret of this process, in a file that only the broker's user can read.

The driver reads the data directory in any case, on whatever machine it runs. So a file there reaches it, and nobody who
only has a connection. It names the secret as part of its transactional id. Each start makes a new one: an old one opens
nothing. See decision 13.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from barnabas.wire.queries.writer import SECRET_FILE, WRITER_ID


class DriverSecret:
    """The secret of this process."""

    def __init__(self, data_dir: Path) -> None:
        """Make a new secret. Raises OSError."""
        self.writer_id = f"{WRITER_ID}:{secrets.token_hex(32)}"
        made = data_dir / f"{SECRET_FILE}.new"
        made.unlink(missing_ok=True)
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(self.writer_id)
        made.replace(data_dir / SECRET_FILE)

    def proves(self, transactional_id: str | None) -> bool:
        """Whether who names this id is the driver."""
        return transactional_id is not None and hmac.compare_digest(
            transactional_id.encode(errors="replace"), self.writer_id.encode()
        )

    def is_claimed(self, transactional_id: str) -> bool:
        """Whether somebody who cannot prove it says to be a driver: such names are nobody else's."""
        return transactional_id.startswith(WRITER_ID) and not self.proves(transactional_id)
