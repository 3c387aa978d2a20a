"""The secret with which the nodes of one broker log in to each other. Only the broker's user can read its file.

Each supervisor makes a new secret before its nodes start, so a node of an earlier supervisor cannot log in.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from barnabas.broker.between.membership import FOLDER

_FILE = "secret"


def make_secret(data_dir: Path) -> None:
    """Make a new secret. Raises OSError."""
    folder = data_dir / FOLDER
    folder.mkdir(exist_ok=True)
    fresh = folder / f"{_FILE}.new"
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    fresh.replace(folder / _FILE)


def read_secret(data_dir: Path) -> str:
    """The present secret. Raises OSError, and ValueError if the file is not text."""
    return (data_dir / FOLDER / _FILE).read_text()
