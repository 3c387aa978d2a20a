"""A Kafka-protocol-compatible broker whose partitions Spark reads as they are.

What is installed is this one package. In a checkout its rooms (`wire`, `storage`, `groupcoord`, `broker`, `client`,
`connect`, `streams`, `scripts`) are folders at the top, and stand here as links to them. docs/architecture.md shows
each of them.
"""

import sys

if sys.implementation.name == "pypy":  # docs/decisions/0074-on-pypy.md
    from barnabas.wire import msgspec_for_pypy

    sys.modules.setdefault("msgspec", msgspec_for_pypy)
    # The versions in Python are used: PyPy compiles them, and a call from PyPy to C costs more.
    for name in ("_compact", "_lines", "_walk"):
        sys.modules[f"barnabas.wire.{name}"] = None  # type: ignore[assignment]
