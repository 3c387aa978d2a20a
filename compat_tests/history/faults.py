"""The faults that hit a broker during a history: kills, stops, pauses, a full disk, jumps of the clock. All are seeded.

With several nodes there are also faults of one node, and partitions move all the time.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from compat_tests import small_disk
from compat_tests.broker_process import Barnabas, Server
from compat_tests.history.moves import Mover
from compat_tests.nodes.broker import Nodes
from compat_tests.tools import ROOT
from compat_tests.waiting import DEADLINE

DISK_MIB = 512
_NO_ROOM = "No space left on device"
#: The most bytes that a full disk has free at first.
_SPARE_BYTES = 1 << 18
OF_ALL = ("kill", "kill on full disk", "stop", "stop on full disk", "clock")
KINDS = (*OF_ALL, "kill", "pause", "full disk")
#: The faults of several nodes; `kill` kills all of them. They share one disk.
NODE_KINDS = (
    *("kill node", "kill a mover", "pause node", "full disk", "kill node on full disk") * 3,
    *("kill supervisor", *OF_ALL),
)


class ShiftedBarnabas(Barnabas):
    """A broker whose clock a test sets. Its data may lie on a small disk of its own."""

    def __init__(self, folder: Path, overrides: dict[str, str] | None = None) -> None:
        super().__init__(folder, overrides)
        self.shift = folder / "shift"
        self.is_small = False

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("barnabas")
        script = ROOT / "compat_tests" / "history" / "shifted_broker.py"
        return [sys.executable, str(script), str(self.shift), *command[at + 1 :]]

    def mount(self) -> str | None:
        """Put the data on a disk of `DISK_MIB`; returns the reason if that is not possible."""
        why = small_disk.mount(self.data_dir, DISK_MIB)
        self.is_small = why is None
        return why

    def unmount(self) -> None:
        if self.is_small:
            small_disk.unmount(self.data_dir)


class ShiftedNodes(ShiftedBarnabas, Nodes):
    """The same for several nodes. Clients know the addresses of all, as any node may be away."""

    def __init__(self, folder: Path, overrides: dict[str, str] | None = None) -> None:
        super().__init__(folder, overrides)
        self.expected_errors.append("node.ended")

    def mount(self) -> str | None:
        why = super().mount()
        if self.is_small:
            self.expected_errors.append(_NO_ROOM)
        return why

    def errors(self) -> list[str]:
        """A full disk is expected to refuse partitions, but not to take them offline."""
        lines = self.log_file.read_text(errors="replace").splitlines()
        offline = [line for line in lines if "partition.offline" in line and _NO_ROOM in line]
        return [*super().errors(), *offline]

    @property
    def address(self) -> str:
        return self.servers


class Faults:
    """Causes one fault after the other, until `seconds` are over or there were `most` kills."""

    def __init__(self, server: Server, seed: int, kinds: tuple[str, ...] = KINDS, mover: Mover | None = None) -> None:
        """`mover` moves partitions of a broker of several nodes."""
        self.server, self.mover = server, mover
        self.random = random.Random(seed)
        self.kinds = [
            kind
            for kind in kinds
            if kind in ("kill", "stop", "pause")
            or (isinstance(server, Nodes) and kind in ("kill node", "pause node", "kill supervisor"))
            or (mover is not None and kind == "kill a mover")
            or (isinstance(server, ShiftedBarnabas) and (kind == "clock" or (server.is_small and "full disk" in kind)))
        ]
        self.done: Counter[str] = Counter()
        self._never = threading.Event()

    def run(self, seconds: float, step: tuple[float, float] = (0.5, 3.0), most: int = 1 << 30) -> None:
        end = threading.Event()
        timer = threading.Timer(seconds, end.set)
        timer.start()
        try:
            while not end.wait(self.random.uniform(*step)) and self.done["kill"] < most:
                kind = self.random.choice(self.kinds) if self.kinds else ""
                self._actions().get(kind, self._nothing)()
                if kind:
                    self.done[kind] += 1
        finally:
            timer.cancel()
            if isinstance(self.server, ShiftedBarnabas):
                self.server.shift.write_text("0")

    def _actions(self) -> dict[str, Callable[[], None]]:
        return {
            "kill": self.kill,
            "kill on full disk": self.kill_on_full_disk,
            "stop": self.stop,
            "stop on full disk": self.stop_on_full_disk,
            "pause": self.pause,
            "full disk": self.fill,
            "clock": self.jump,
            "kill node": self.kill_node,
            "kill a mover": self.kill_mover,
            "kill supervisor": self.kill_supervisor,
            "kill node on full disk": self.kill_node_on_full_disk,
            "pause node": self.pause_node,
        }

    def _nothing(self) -> None:
        """A quiet run has no faults."""

    def kill(self) -> None:
        """SIGKILL, and a new process on the same files."""
        self.server.kill()
        self.server.start()

    def kill_on_full_disk(self) -> None:
        """SIGKILL while the disk is full; it has room at the next start."""
        with self._full_disk():
            self._never.wait(self.random.uniform(0, 0.5))
            self.server.kill()
        self.server.start()

    def stop(self) -> None:
        """A clean stop, and a new process on the same files."""
        self.server.stop()
        self.server.start()

    def stop_on_full_disk(self) -> None:
        """A stop that cannot write everything down; the disk has room at the next start."""
        with self._full_disk():
            self._never.wait(self.random.uniform(0, 0.5))
            self.server.stop()
        self.server.start()

    def pause(self) -> None:
        """Pause all processes for a while."""
        process = self.server.process
        assert process
        process.send_signal(signal.SIGSTOP)
        self._never.wait(self.random.choice([0.05, 0.5, 2.0]))
        process.send_signal(signal.SIGCONT)

    def _node(self) -> tuple[Nodes, int]:
        assert isinstance(self.server, Nodes)
        return self.server, self.random.randint(1, self.server.processes)

    def kill_node(self) -> None:
        """SIGKILL for one node, sometimes two; the owner of the metadata is chosen as often as any other node."""
        nodes, node = self._node()
        other = self.random.randint(1, nodes.processes)
        nodes.kill_node(*({node, other} if self.random.random() < 0.3 else {node}))

    def kill_supervisor(self) -> None:
        """SIGKILL for the supervisor; its nodes stop by themselves, and a new one waits until they have."""
        process = self.server.process
        assert process
        process.kill()
        process.wait(DEADLINE)
        self.server.start()

    def kill_mover(self) -> None:
        """SIGKILL for one node while partitions move: it gives them, takes them, or writes the moves down."""
        assert self.mover is not None
        self.mover.many_now()
        self._never.wait(self.random.uniform(0, 0.05))
        self.kill_node()

    def kill_node_on_full_disk(self) -> None:
        """SIGKILL for one node; the disk has no room when it starts again, and has room soon after."""
        with self._full_disk() as filler:
            room = threading.Timer(self.random.uniform(0.2, 3.0), filler.unlink)
            room.start()
            self.kill_node()
            room.join()

    def pause_node(self) -> None:
        """Pause one node while the others run."""
        nodes, node = self._node()
        nodes.send(node, signal.SIGSTOP)
        self._never.wait(self.random.choice([0.05, 0.5, 3.0]))
        nodes.send(node, signal.SIGCONT)

    def fill(self) -> None:
        """Fill the disk for a second, while partitions move if there are several nodes."""
        with self._full_disk():
            if self.mover is not None:
                self.mover.many_now()
            self._never.wait(self.random.uniform(0.2, 1.0))

    @contextmanager
    def _full_disk(self) -> Iterator[Path]:
        """Fill the disk during the block; sometimes it gets full some writes later. Yields the file that fills it."""
        filler = self.server.data_dir / "filler"
        small_disk.fill(filler, self.random.choice([0, self.random.randrange(_SPARE_BYTES)]))
        try:
            yield filler
        finally:
            filler.unlink(missing_ok=True)

    def jump(self) -> None:
        """Change the wall clock, by up to half an hour."""
        assert isinstance(self.server, ShiftedBarnabas)
        self.server.shift.write_text(str(self.random.randint(-1_800_000, 1_800_000)))
