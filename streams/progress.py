"""Shows progress while something runs: one line that is updated on a terminal, a new line for each change elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_SECONDS = 0.5
_WIDTH = 24
_ANEW = "\r\x1b[K"  # go back, clear the line


def bar(part: float) -> str:
    """A bar for a part of the whole, from 0 to 1."""
    return f"[{'#' * round(part * _WIDTH):-<{_WIDTH}}]"


@contextmanager
def shown(out: TextIO, look: Callable[[], tuple[float | None, str]]) -> Iterator[None]:
    """Inside this context, show twice a second on `out` what `look` returns: the part done, if known, and a text.

    The bar is drawn on a terminal only. `look` is called in its own thread, and must not raise.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_show, args=(out, look, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _show(out: TextIO, look: Callable[[], tuple[float | None, str]], stop: threading.Event) -> None:
    terminal = out.isatty()
    told = ""
    while not stop.wait(_SECONDS):
        part, text = look()
        if terminal:
            out.write(f"{_ANEW}{text}" if part is None else f"{_ANEW}{bar(part)} {text}")
        elif text != told:
            out.write(f"{text}\n")
        out.flush()
        told = text
    if terminal:
        out.write(_ANEW)
        out.flush()
