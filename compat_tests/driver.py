"""The interface between scenarios and clients. Each client's folder has one `Driver`, which calls the client's own API.

A driver raises `NotApplicable`, with the reason, if its client lacks a feature; the report then shows n/a. It raises
`Refused`, with Kafka's name of the error, if the broker refuses a request.
"""

from __future__ import annotations

import queue
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from compat_tests.waiting import DEADLINE, changed, until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_MS = 200


class NotApplicable(Exception):
    """The client has no such feature; the message says which."""


class Refused(Exception):
    """The broker answered with an error; the message is Kafka's name of it."""


@dataclass(frozen=True)
class Record:
    """A record as a client writes or reads it. None: the client chooses the value, or does not report it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None
    offset: int | None = None


@dataclass(frozen=True)
class At:
    """The position to begin reading at: the kind is beginning, offset or timestamp."""

    kind: str
    number: int = 0


BEGINNING = At("beginning")


class Member(ABC):
    """A consumer in a group that reads until it is closed. Its records and rebalances are appended to the lists."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.assigned: frozenset[int] = frozenset()
        self.assignments: list[frozenset[int]] = []
        self.revocations: list[frozenset[int]] = []
        self.failure: BaseException | None = None

    def on_records(self, records: Iterable[Record]) -> None:
        """The client returned records."""
        self.records.extend(records)
        changed()

    def on_assigned(self, partitions: Iterable[int]) -> None:
        """The member was assigned more partitions."""
        self.assigned |= frozenset(partitions)
        self.assignments.append(self.assigned)
        changed()

    def on_revoked(self, partitions: Iterable[int]) -> None:
        """Partitions were taken from the member."""
        gone = frozenset(partitions)
        if gone:
            self.revocations.append(gone)
        self.assigned -= gone
        changed()

    def on_failure(self, error: BaseException) -> None:
        """The client failed for good."""
        self.failure = error
        changed()

    def values(self) -> list[bytes | None]:
        """The values read so far."""
        return [record.value for record in self.records]

    @abstractmethod
    def close(self) -> None:
        """Leave the group as the client does when its program ends."""


class ThreadMember(Member):
    """A member that polls in a thread of its own, for clients that live in this process."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    def _run(self) -> None:
        try:
            with ExitStack() as stack:
                self.open(stack)
                while not self._stop.is_set():
                    self.poll()
        except BaseException as error:
            self.on_failure(error)

    @abstractmethod
    def open(self, stack: ExitStack) -> None:
        """Make the consumer; the stack closes it."""

    @abstractmethod
    def poll(self) -> None:
        """Poll once, for less than a second."""

    def close(self) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the consumer did not close in 30 s"


class ProcessMember(Member):
    """A member that is a process and reports its events line by line."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__()
        self.command = command
        self.noise: list[str] = []
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream, see), daemon=True)
            for stream, see in ((self.process.stdout, self.see_output), (self.process.stderr, self.see_error))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, see: Callable[[str], None]) -> None:
        with stream:
            for line in stream:
                try:
                    see(line.rstrip("\n"))
                except Exception as error:
                    self.on_failure(AssertionError(f"cannot read {line!r}: {error!r}"))
        changed()

    @abstractmethod
    def see_output(self, line: str) -> None:
        """Handle a line of standard output."""

    def see_error(self, line: str) -> None:
        """Handle a line of standard error."""
        self.noise.append(line)

    def wait(self, deadline: float = DEADLINE) -> None:
        """Return when the process has ended by itself and all of its output was read."""
        try:
            self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            self.process.kill()
            said = "\n".join(self.noise[-20:])
            raise AssertionError(f"{self.command[0]} did not end in {deadline:g} s:\n{said}") from None
        for reader in self._readers:
            reader.join(120)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.wait()


class Driver(ABC):
    """One client, connected to one broker."""

    name: ClassVar[str]
    tool: ClassVar[str | None] = None
    lost_by_close: ClassVar[int] = 0  # the number of records that a closing member may commit without returning them

    def __init__(self, address: str) -> None:
        self.address = address

    @staticmethod
    @abstractmethod
    def version() -> str:
        """The client's version, for the report."""

    def close(self) -> None:  # noqa: B027
        """Close the connections that scenarios share; most clients share none."""

    # --- records ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False
    ) -> None:
        """Write records and wait until they are acknowledged. Raises Refused."""

    @abstractmethod
    def consume(self, topic: str, count: int, at: At = BEGINNING, partition: int | None = 0) -> list[Record]:
        """Read `count` records without a group; of all partitions if `partition` is None."""

    # --- groups -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def join(
        self, group: str, topic: str, *, latest: bool = False, instance: str | None = None, strategy: str = "range"
    ) -> Member:
        """Start a member. Without committed offsets it reads from the beginning, or only new records."""

    @abstractmethod
    def consume_in_group(self, group: str, topic: str, count: int) -> list[Record]:
        """Join, read exactly `count` records, commit the offset after them, leave."""

    # --- administration -----------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        """Create a topic. Raises Refused."""
        raise NotApplicable("the client has no admin functions")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic. Raises Refused."""
        raise NotApplicable("the client has no admin functions")

    def topics(self) -> dict[str, int]:
        """The names and partition counts of all topics."""
        raise NotApplicable("the client does not list topics")

    def topic_config(self, topic: str) -> dict[str, str]:
        """All settings of a topic, with their effective values."""
        raise NotApplicable("the client has no admin functions")

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        """Change one setting of a topic."""
        raise NotApplicable("the client has no admin functions")

    def groups(self) -> set[str]:
        """The ids of all groups."""
        raise NotApplicable("the client has no admin functions")

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The committed offset of each partition."""
        raise NotApplicable("the client has no admin functions")


def wait_for_records(member: Member, count: int, what: str = "records") -> None:
    """Return when a member has read `count` records. Raises the error that made it fail."""
    until(lambda: member.failure or len(member.records) >= count, f"{count} {what} (have {len(member.records)})")
    if member.failure:
        raise member.failure
