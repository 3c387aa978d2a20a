"""Run pieces of Python one after the other in one module, as `session.Session` asks for them."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any


def pieces(descriptor: int) -> Iterator[str]:
    """The pieces of the input, each ended by a NUL."""
    rest = b""
    while part := os.read(descriptor, 65536):
        *whole, rest = (rest + part).split(b"\0")
        yield from (piece.decode() for piece in whole if piece)


def main() -> None:
    asked, told = map(int, sys.argv[1:])
    for descriptor in (asked, told):
        os.set_inheritable(descriptor, False)
    sys.path[0] = os.getcwd()
    here: dict[str, Any] = {"__name__": "__main__"}
    for piece in pieces(asked):
        status = 0
        try:
            exec(compile(piece, "<block>", "exec"), here)
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(told, b"%d\n" % status)


if __name__ == "__main__":
    main()
