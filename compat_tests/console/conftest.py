"""A browser for the tests of each module, and a broker with a console."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.broker_process import Barnabas
from compat_tests.console.browser import Browser
from compat_tests.tools import missing


def free_port() -> int:
    """A free port, which a broker keeps over its restart."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Shown(Barnabas):
    """A broker with a console at `url`."""

    def __init__(self, folder: Path, overrides: dict[str, str] | None = None) -> None:
        self.url = f"http://127.0.0.1:{free_port()}/console/"
        listen = {"barnabas.http.listen": self.url.split("/")[2], "barnabas.http.console.writes": "true"}
        super().__init__(folder, {**listen, **(overrides or {})})


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if reason := missing("chromium"):
        pytest.skip(reason)
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running
