"""Which file says how to log in to a broker: one for the whole process and its child processes."""

from __future__ import annotations

import os

#: The environment variable with the file's path; it is a `client.properties` as for Kafka's tools.
VARIABLE = "BARNABAS_COMMAND_CONFIG"


def use(path: str) -> None:
    """Use this file from now on, in this process and its child processes."""
    os.environ[VARIABLE] = os.path.abspath(path)
