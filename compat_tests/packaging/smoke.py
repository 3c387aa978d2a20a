"""The check of each wheel that is built: a broker of the installed package takes a record and gives it back."""

from __future__ import annotations

import subprocess
import sys

from barnabas.testing import Broker


def main() -> int:
    """Write a record with the command, read it back."""
    with Broker() as broker:
        command = [sys.executable, "-m", "barnabas"]
        at = ["-b", broker.bootstrap_servers]
        subprocess.run([*command, "produce", *at, "smoke"], input="hello\n", text=True, check=True, timeout=60)
        read = [*command, "consume", *at, "smoke", "--from-beginning", "--exit"]
        found = subprocess.run(read, capture_output=True, text=True, check=True, timeout=60).stdout
    print(f"read {found!r}")
    return found != "hello\n"


if __name__ == "__main__":
    sys.exit(main())
