"""The C modules are optional: without a compiler the installation succeeds, and slower Python code is used instead."""

from __future__ import annotations

import logging


def warn_not_built(what: str, instead: str) -> None:
    """Log which C part is missing. Callers do so once per process."""
    logging.getLogger("barnabas.streams").warning(
        "the %s in C is not built, the slower one %s is used: install a C compiler and run `pip install -e .` again",
        what,
        instead,
    )
