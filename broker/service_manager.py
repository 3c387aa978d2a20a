"""What a service manager such as systemd is told, if one has started the broker: when it serves, and that it lives.

The broker writes datagrams to the socket that NOTIFY_SOCKET names. Where that is not set, nothing is told. While a long
recovery goes on, the manager is asked for more time with each step of it: work bounds it, and not the clock. With a
watchdog (WATCHDOG_USEC) the event loop tells that it turns.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import trio

#: For how long a step of the recovery may take until the manager gives up.
PATIENCE_SECONDS = 120


class ServiceManager:
    """Tells the one that has started this process, if there is one. Its errors are nobody's: the broker goes on."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        #: "@" stands for the null byte that begins an abstract name.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_seconds = self._watchdog(environment)

    @staticmethod
    def _watchdog(environment: Mapping[str, str]) -> float:
        """Seconds within which the manager wants to hear that the process lives; 0 if it does not ask."""
        of = environment.get("WATCHDOG_PID")
        if of not in (None, str(os.getpid())):
            return 0.0
        try:
            return int(environment.get("WATCHDOG_USEC", "0")) / 1e6
        except ValueError:
            return 0.0

    def tell(self, **fields: object) -> None:
        """Tell fields, such as READY=1."""
        if not self._address:
            return
        text = "\n".join(f"{name}={str(value).splitlines()[0]}" for name, value in fields.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto(text.encode(errors="replace"), self._address)
        except OSError:
            pass

    def recovering(self, done: int, total: int) -> None:
        """A step of the recovery is done."""
        self.tell(STATUS=f"recovering: {done} of {total} partitions", EXTEND_TIMEOUT_USEC=PATIENCE_SECONDS * 1_000_000)

    def starting(self, done: int, total: int) -> None:
        """Nodes begin, some of which may have much to recover; one that hangs its supervisor ends."""
        self.tell(STATUS=f"starting: {done} of {total} nodes", EXTEND_TIMEOUT_USEC=PATIENCE_SECONDS * 1_000_000)

    def ready(self, where: str) -> None:
        """Clients can connect."""
        self.tell(READY=1, STATUS=f"serving on {where}")

    def stopping(self) -> None:
        """A clean stop has begun."""
        self.tell(STOPPING=1, STATUS="stopping")

    def tell_watchdog(self) -> None:
        """This process lives."""
        if self._watchdog_seconds:
            self.tell(WATCHDOG=1)

    async def watched(self) -> None:
        """Tell the watchdog that the event loop turns, twice as often as it asks; returns at once if none does."""
        while self._address and self._watchdog_seconds:
            self.tell(WATCHDOG=1)
            await trio.sleep(self._watchdog_seconds / 2)
