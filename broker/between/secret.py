"""What the nodes of one broker prove themselves with: a secret in a file that only the broker's user can read.

It is made anew by each supervisor before its nodes start, so a node that outlived another supervisor is not let in.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from barnabas.broker.between.membership import FOLDER

_FILE = "secret"


def make_secret(data_dir: Path) -> None:
    """Make a new one. Raises OSError."""
    folder = data_dir / FOLDER
    folder.mkdir(exist_ok=True)
    fresh = folder / f"{_FILE}.new"
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    fresh.replace(folder / _FILE)


def read_secret(data_dir: Path) -> str:
    """Raises OSError, and ValueError for what is no text."""
    return (data_dir / FOLDER / _FILE).read_text()
