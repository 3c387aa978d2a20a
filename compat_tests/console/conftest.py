"""A browser for the tests of each module, and a broker with a console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.broker_process import Barnabas, following_free_ports
from compat_tests.console.browser import Browser
from compat_tests.tools import missing


class Shown(Barnabas):
    """A broker with a console at `url`, which it keeps over a restart."""

    def __init__(self, folder: Path, overrides: dict[str, str] | None = None) -> None:
        self.url = f"http://127.0.0.1:{following_free_ports(self.processes)}/console/"
        listen = {"barnabas.http.listen": self.url.split("/")[2], "barnabas.http.console.writes": "true"}
        super().__init__(folder, {**listen, **(overrides or {})})


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if reason := missing("chromium"):
        pytest.skip(reason)
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running
