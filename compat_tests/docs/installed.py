"""A stand-in for `pip install` on the pages: it installs nothing; the packages and extras must be installed already.

`compat_tests/packaging` tests that a wheel can be built and installed.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Sequence


def main(words: Sequence[str]) -> int:
    if words[0] != "install":
        print(f"pip {words[0]} is not what a page does", file=sys.stderr)
        return 2
    known = set(importlib.metadata.metadata("barnabas").get_all("Provides-Extra") or ())
    for word in words[1:]:
        match = re.fullmatch(r"(?:[\w./-]*/)?(?:barnabas|\.)(?:\[(?P<extras>[\w,]+)\])?", word)
        if match is None:
            importlib.metadata.version(word)
        elif unknown := set((match["extras"] or "").split(",")) - known - {""}:
            print(f"{word}: there is no extra {', '.join(sorted(unknown))}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
