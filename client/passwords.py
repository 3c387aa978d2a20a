"""What commands need to create users: a password that is typed or piped in, and a salt; and the list of users."""

from __future__ import annotations

import getpass
import os
import secrets
import string
import sys

from barnabas.client.errors import ClientError
from barnabas.wire.text import visible

VARIABLE = "BARNABAS_PASSWORD"
_SALT_CHARACTERS = 26


def read_password(user: str) -> str:
    """The password from the environment, typed twice, or from the first line of standard input. Raises ClientError."""
    password = os.environ.get(VARIABLE)
    if password is None and sys.stdin.isatty():
        password = getpass.getpass(f"Password of {visible(user)}: ")
        if getpass.getpass("Again: ") != password:
            raise ClientError("The passwords are not the same")
    elif password is None:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ClientError(f"There is no password: type it, pipe it in, or set {VARIABLE}")
    return password


def new_salt() -> bytes:
    """A new salt, made like that of Kafka's tools."""
    letters = string.ascii_lowercase + string.digits
    return "".join(secrets.choice(letters) for _ in range(_SALT_CHARACTERS)).encode()
