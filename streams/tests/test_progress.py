"""Progress, as shown on a terminal and elsewhere."""

from __future__ import annotations

import io
import threading

import pytest

from barnabas.streams import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("out", [Terminal(), io.StringIO()])
def test_changes_are_told_and_a_terminal_is_left_clean(out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SECONDS", 0.001)
    seen = iter([(None, "starting"), (None, "starting"), (0.5, "half"), (0.5, "half")])
    all_seen = threading.Event()

    def look() -> tuple[float | None, str]:
        try:
            return next(seen)
        except StopIteration:
            all_seen.set()
            return 1.0, "done"

    with progress.shown(out, look):
        assert all_seen.wait(30)
    told = out.getvalue()
    if out.isatty():
        assert told.startswith("\r\x1b[Kstarting\r\x1b[Kstarting\r\x1b[K[############------------] half")
        assert told.endswith("done\r\x1b[K")
    else:
        assert told == "starting\nhalf\ndone\n"
