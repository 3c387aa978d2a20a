"""`python -m barnabas.streams.select`: see `door`. Arrow is imported first, without what it would bring along."""

from __future__ import annotations

import importlib
import sys

from barnabas.streams.quick_arrow import import_arrow

if __name__ == "__main__":
    import_arrow()
    sys.exit(importlib.import_module("barnabas.streams.select.door").run())
