"""Several processes as one broker: a supervisor starts nodes, watches them, restarts them, and stops them.

    start:  claim the data directory -> secrets -> fork a process for each node -> all serve -> print the ready line
    watch:  a node that has ended is started again; one that hangs (`Child.silent`) is killed, and reaped
    end:    a signal goes to all nodes, to the owner of the metadata last -> their checkpoints are merged into one set

The supervisor serves no clients and has no event loop, no threads and no metadata, so nothing can make it hang. A node
is started again only after its process was reaped: from then on, that process cannot write any more. Nodes end when
their supervisor does: each holds one end of a pipe, and the system closes the other end.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.broker.between.membership import Membership
from barnabas.broker.between.node_process import BEAT, BEAT_SECONDS, run_node
from barnabas.broker.between.secret import make_secret
from barnabas.broker.jobs.driver_secret import DriverSecret
from barnabas.broker.log import EventLog
from barnabas.broker.service_manager import ServiceManager
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.settings.listeners import Listener
from barnabas.storage import garbage
from barnabas.storage.claim import Claim
from barnabas.storage.errors import NodeRunsError, StorageError
from barnabas.storage.io import Io

#: How long to wait for the nodes of an earlier supervisor that was killed.
LAST_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.05
# A node that ends soon after each start is restarted after longer and longer pauses.
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 0.1, 10.0
_SERVED_WELL_SECONDS = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass
class Child:
    """The process of a node: the present one, or the last one."""

    node: int
    pid: int = 0
    pipe: int = -1
    #: The output since the last whole line.
    rest: bytes = b""
    #: The addresses for its clients, once they can connect.
    address: str = ""
    #: The address of its HTTP listener, if it has one.
    http: str = ""
    #: Seconds without a sign of life. Only time counts in which the supervisor could run and the node did not wait for
    #: a core.
    silent: float = 0.0
    #: Seconds since its last sign, or since it was last looked at. A node that gives signs is hardly ever looked at.
    unlooked: float = 0.0
    started: float = 0.0
    backoff: float = 0.0
    again_at: float = 0.0
    #: The CPU time of its event loop's thread at the last check, in seconds.
    cpu: float = 0.0
    is_killed: bool = False


@dataclass
class Supervisor:
    """The nodes of one broker. `run` returns the exit status."""

    properties: Mapping[str, str]
    count: int
    log: EventLog
    ready_file: Path | None
    began: float
    told: Callable[[str], None]
    children: dict[int, Child] = field(default_factory=dict)
    _stopping: bool = False
    _is_ready: bool = False
    _status: int = 0

    def run(self) -> int:
        """Run until a signal, or until a node cannot start. Raises ConfigError, StorageError."""
        config = BrokerConfig(self.properties)
        self._data_dir = config.data_dir
        self._owner = config.node_id
        self._hangs_seconds: float = config["barnabas.node.hang.ms"] / 1000
        check_ports([shifted(self.properties, index, self.count) for index in range(self.count)])
        self._manager = ServiceManager()
        claim = self._claim(config["cluster.id"])
        try:
            self._watch()
        except OSError as error:
            raise StorageError(f"cannot start the nodes of {self._data_dir}: {error}") from error
        finally:
            if self.ready_file is not None:
                self.ready_file.unlink(missing_ok=True)
            claim.fold()
            claim.release()
        if not self._status:
            self.log.info("stopped")
        return self._status

    def _claim(self, cluster_id: str | None) -> Claim:
        """Lock the data directory. Nodes of a supervisor that was killed stop by themselves; wait until they have."""
        path, told = os.path.abspath(self._data_dir), False
        until = time.monotonic() + LAST_STOP_SECONDS
        while True:
            try:
                return take_for_nodes(path, self._owner, cluster_id)
            except NodeRunsError as error:
                if time.monotonic() > until:
                    raise
                if not told:
                    told = True
                    self.log.warning("node.still.runs", reason=error, action="waiting")
                time.sleep(_LOOK_SECONDS)  # there is no event for a lock that becomes free

    def _watch(self) -> None:
        self._selector = selectors.DefaultSelector()
        wake_read, wake_write = os.pipe()
        for fd in (wake_read, wake_write):
            os.set_blocking(fd, False)
        self._selector.register(wake_read, selectors.EVENT_READ)
        self._wakes = (wake_read, wake_write)
        self._signals: list[int] = []
        before = {number: signal.signal(number, self._on_signal) for number in self._handled()}
        signal.set_wakeup_fd(wake_write)
        self._life_read, self._life_write = os.pipe()  # the nodes see end-of-file when this process ends
        try:
            garbage.keep_all()  # so the nodes' collections leave the memory unchanged that they share
            self.children = {node: Child(node) for node in self._ids()}
            for child in self.children.values():
                self._start(child)
            self._loop(wake_read)
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._end_all()
            for fd in (*self._wakes, self._life_read, self._life_write):
                os.close(fd)
            self._selector.close()

    def _ids(self) -> range:
        return range(self._owner, self._owner + self.count)

    def _handled(self) -> list[int]:
        """The signals to handle. With nohup, SIGHUP stays ignored, so a broker continues after its terminal closes."""
        is_kept = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        return [signal.SIGCHLD, *(number for number in _STOPS if number != signal.SIGHUP or not is_kept)]

    def _on_signal(self, number: int, _: object) -> None:
        self._signals.append(number)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _loop(self, wake: int) -> None:
        last = time.monotonic()
        while any(child.pid for child in self.children.values()) or not self._stopping:
            for key, _ in self._selector.select(BEAT_SECONDS):
                if key.fd == wake:
                    os.read(wake, 512)
                else:
                    self._hear(self.children[key.data])
            now = time.monotonic()
            turn, last = min(now - last, 2 * BEAT_SECONDS), now
            while self._signals:
                self._handle(self._signals.pop(0))
            self._reap()
            for child in self.children.values():
                self._look_after(child, turn)
            self._manager.tell_watchdog()
            if not self._is_ready and not self._stopping:
                self._manager.starting(sum(bool(child.address) for child in self.children.values()), self.count)

    def _handle(self, number: int) -> None:
        if number == signal.SIGCHLD:
            return
        if not self._stopping:
            self.log.info("stopping", signal=signal.Signals(number).name)
            self._manager.stopping()
        is_first, self._stopping = not self._stopping, True
        for child in self.children.values():
            if child.pid and (child.node != self._owner or not is_first):
                os.kill(child.pid, signal.SIGTERM)

    def _look_after(self, child: Child, turn: float) -> None:
        if not child.pid:
            if not self._stopping and time.monotonic() >= child.again_at:
                self._start(child)
            return
        if self._stopping and child.node == self._owner and not child.is_killed and self._is_last(child):
            child.is_killed = True
            os.kill(child.pid, signal.SIGTERM)
        child.unlooked += turn
        if child.unlooked >= BEAT_SECONDS:
            self._look_at(child)

    def _look_at(self, child: Child) -> None:
        """Count the silence of a node, by what its event loop's thread does. Kill it if it hangs."""
        waits_for_core, cpu = loop_thread(child.pid)
        worked, child.cpu = cpu - child.cpu, cpu
        turn, child.unlooked = child.unlooked, 0.0
        if worked and not child.address:
            child.silent = 0.0  # a start may hold the event loop for long, but it uses CPU
        else:
            child.silent += min(turn, worked) if waits_for_core else turn
        if child.silent > self._hangs_seconds:
            child.silent = 0.0
            self.log.error("node.hangs", node=child.node, pid=child.pid, action="killed")
            os.kill(child.pid, signal.SIGKILL)

    def _is_last(self, owner: Child) -> bool:
        return not any(child.pid for child in self.children.values() if child is not owner)

    def _hear(self, child: Child) -> None:
        """Read the output of a node: signs of life, and its addresses once it serves."""
        try:
            data = os.read(child.pipe, 4096)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(child.pipe)
            return
        child.silent = child.unlooked = 0.0
        *lines, child.rest = (child.rest + data).split(b"\n")
        for line in lines:
            if line and line != BEAT:
                child.address, _, child.http = line.decode(errors="replace").partition(" ")
                self._served()

    def _served(self) -> None:
        if self._is_ready or not all(child.address for child in self.children.values()):
            return
        self._is_ready = True
        addresses = [child.address for child in self.children.values()]
        if self.ready_file is not None:
            fresh = self.ready_file.with_name(f"{self.ready_file.name}.new")
            fresh.write_text(",".join(addresses) + "\n")
            fresh.replace(self.ready_file)
        pages = [child.http for child in self.children.values() if child.http]
        if pages:
            self.told(f"HTTP is on {', '.join(pages)}")
        self.told(
            f"barnabas is ready on {', '.join(addresses)}, {self.count} nodes, data in {self._data_dir}, started in "
            f"{time.perf_counter() - self.began:.2f} s"
        )
        self._manager.ready(", ".join(addresses))

    # --- processes ----------------------------------------------------------------------------------------------------

    def _start(self, child: Child) -> None:
        """Fork the process of a node."""
        read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            status = 70
            try:
                os.close(read)
                self._become_child()
                config = shifted(self.properties, child.node - self._owner, self.count)
                membership = Membership(child.node, self._owner, self.count, Path(os.path.abspath(self._data_dir)))
                status = run_node(config, self.log.of(node=child.node), membership, write, self._life_read)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(write)
        os.set_blocking(read, False)
        fcntl.fcntl(read, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        child.pid, child.pipe, child.rest, child.is_killed = pid, read, b"", False
        child.silent, child.unlooked, child.cpu = 0.0, 0.0, 0.0
        child.started, child.address = time.monotonic(), ""
        self._selector.register(read, selectors.EVENT_READ, child.node)

    def _become_child(self) -> None:
        """Close the signals and pipes of the supervisor. Its lock belongs to its process, so no child inherits it."""
        signal.set_wakeup_fd(-1)
        for number in self._handled():
            signal.signal(number, signal.SIG_DFL)
        os.close(self._life_write)
        for fd in self._wakes:
            os.close(fd)
        for other in self.children.values():
            if other.pipe >= 0:
                os.close(other.pipe)
        self._selector.close()

    def _reap(self) -> None:
        for child in self.children.values():
            if not child.pid:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._ended(child, status)

    def _ended(self, child: Child, status: int) -> None:
        try:
            self._hear(child)
            self._selector.unregister(child.pipe)
        except KeyError:
            pass
        os.close(child.pipe)
        code = os.waitstatus_to_exitcode(status)
        served = time.monotonic() - child.started
        child.pid, child.pipe = 0, -1
        if self._stopping:
            self._status = self._status or (code if code > 0 else 0)
            return
        if code == 1 and not self._is_ready:  # it has already told the operator why it cannot start
            self._stopping, self._status = True, 1
            for other in self.children.values():
                if other.pid:
                    os.kill(other.pid, signal.SIGTERM)
            return
        if served > _SERVED_WELL_SECONDS:
            child.backoff = 0.0
        child.again_at = time.monotonic() + child.backoff
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
        self.log.error("node.ended", node=child.node, how=how, again_after=round(child.backoff, 1))
        child.backoff = min(max(2 * child.backoff, _FIRST_BACKOFF_SECONDS), _LAST_BACKOFF_SECONDS)

    def _end_all(self) -> None:
        """Kill all nodes, so that none continues if the supervisor fails."""
        for child in self.children.values():
            if child.pid:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                child.pid = 0


def take_for_nodes(path: str, owner: int, cluster_id: str | None) -> Claim:
    """Take a data directory for nodes whose ids begin with `owner`, and make their secrets. Raises StorageError."""
    claim = Claim.take(Io(), path, node_id=owner, cluster_id=cluster_id, for_nodes=True)
    try:
        make_secret(Path(path))
        DriverSecret(Path(path))
    except OSError as error:
        claim.release()
        raise StorageError(f"cannot prepare {path} for its nodes: {error}") from error
    return claim


def loop_thread(pid: int) -> tuple[bool, float]:
    """Whether the first thread of a process runs or waits for a core, and its CPU time so far, in seconds.

    (False, 0.0) if the system does not tell. Source: proc(5), /proc/PID/task/TID/stat.
    """
    try:
        fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0] == "R", (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, IndexError, ValueError):
        return False, 0.0


def check_ports(nodes: Sequence[BrokerConfig]) -> None:
    """Raises ConfigError if two listeners of the nodes would use the same port."""
    taken: dict[int, str] = {}
    for config in nodes:
        for listener in [*config.listeners, *([config.http] if config.http is not None else [])]:
            mine = f"{listener.name} of node {config.node_id}"
            other = taken.setdefault(listener.port, mine) if listener.port else mine
            if other != mine:
                raise ConfigError(
                    f"{other} and {mine} need the port {listener.port}: each listener has {len(nodes)} ports, "
                    "beginning with the configured one"
                )


def shifted(properties: Mapping[str, str], index: int, count: int) -> BrokerConfig:
    """The settings of one of `count` nodes: its id, and its ports, which are the first node's plus its index.

    A port 0 stays 0: the system chooses. Raises ConfigError.
    """
    found = dict(properties)
    config = BrokerConfig(found)
    for key in ("node.id", "broker.id"):
        if key in found or key == "node.id":
            found[key] = str(config.node_id + index)
    listeners = {"listeners": config.listeners, "advertised.listeners": list(config.advertised or ())}
    for key, given in listeners.items():
        if given:
            found[key] = ",".join(str(_moved(each, index, count)) for each in given)
    if config.http is not None:
        moved = _moved(config.http, index, count)
        scheme = "https" if moved.protocol.is_encrypted else "http"
        host = f"[{moved.host}]" if ":" in moved.host else moved.host
        found["barnabas.http.listen"] = f"{scheme}://{host}:{moved.port}"
    return BrokerConfig(found)


def _moved(listener: Listener, index: int, count: int) -> Listener:
    port = listener.port + index if listener.port else 0
    if listener.port + count - 1 > 65535:
        raise ConfigError(
            f"Listener {listener}: {count} nodes need the ports {listener.port} and up, and there are not enough"
        )
    return Listener(listener.name, listener.host, port, listener.protocol)
