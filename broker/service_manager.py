"""Notifications for a service manager, such as systemd, that has started the broker: it is ready, and it is alive.

The broker writes datagrams to the socket that NOTIFY_SOCKET names. If that is not set, nothing is sent. During a long
recovery, each step asks the manager for more time. So a start may take as long as it makes progress. With a watchdog
(WATCHDOG_USEC), the event loop reports that it runs.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import trio

#: The longest time that one step of the recovery may take before the manager gives up.
PATIENCE_SECONDS = 120


class ServiceManager:
    """Notifies the manager of this process, if there is one. Errors are ignored: the broker can run without it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        #: "@" stands for the null byte that begins an abstract name.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_seconds = self._watchdog(environment)

    @staticmethod
    def _watchdog(environment: Mapping[str, str]) -> float:
        """The interval in seconds within which the manager expects a sign of life; 0 if it expects none."""
        of = environment.get("WATCHDOG_PID")
        if of not in (None, str(os.getpid())):
            return 0.0
        try:
            return int(environment.get("WATCHDOG_USEC", "0")) / 1e6
        except ValueError:
            return 0.0

    def tell(self, **fields: object) -> None:
        """Send fields, such as READY=1."""
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
        """Report that a step of the recovery is done."""
        self.tell(STATUS=f"recovering: {done} of {total} partitions", EXTEND_TIMEOUT_USEC=PATIENCE_SECONDS * 1_000_000)

    def starting(self, done: int, total: int) -> None:
        """Report that nodes are starting, which may take a long recovery. The supervisor kills a node that hangs."""
        self.tell(STATUS=f"starting: {done} of {total} nodes", EXTEND_TIMEOUT_USEC=PATIENCE_SECONDS * 1_000_000)

    def ready(self, where: str) -> None:
        """Report that clients can connect."""
        self.tell(READY=1, STATUS=f"serving on {where}")

    def stopping(self) -> None:
        """Report that a clean stop has begun."""
        self.tell(STOPPING=1, STATUS="stopping")

    def tell_watchdog(self) -> None:
        """Report that this process is alive."""
        if self._watchdog_seconds:
            self.tell(WATCHDOG=1)

    async def watched(self) -> None:
        """Report that the event loop runs, twice in each interval of the watchdog. Returns at once without one."""
        while self._address and self._watchdog_seconds:
            self.tell(WATCHDOG=1)
            await trio.sleep(self._watchdog_seconds / 2)
