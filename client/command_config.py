"""Which file says how a process gets in at a broker: one for the whole process, and for those that it starts."""

from __future__ import annotations

import os

#: The environment variable that names it, a `client.properties` as Kafka's tools take it.
VARIABLE = "BARNABAS_COMMAND_CONFIG"


def use(path: str) -> None:
    """From now on this process, and those that it starts, get in as a file says."""
    os.environ[VARIABLE] = os.path.abspath(path)
