"""`python -m barnabas.streams.select`: see `door`; with the argument `where`: see `where`.

Arrow is imported first, without what it would bring along.
"""

from __future__ import annotations

import importlib
import sys

from barnabas.streams.quick_arrow import import_arrow

if __name__ == "__main__":
    import_arrow()
    door = "where" if sys.argv[1:] == ["where"] else "door"
    sys.exit(importlib.import_module(f"barnabas.streams.select.{door}").run())
