"""The messages of a broker to its service manager, and the systemd unit for it."""

from __future__ import annotations

import configparser
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.service_manager import ServiceManager
from barnabas.scripts.cli import parser
from compat_tests.broker_process import Barnabas
from compat_tests.tools import ROOT

UNIT = ROOT / "docs" / "deploy" / "barnabas.service"


class Manager:
    """A socket as systemd gives it."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))
        self.sock.settimeout(60)

    def hears(self) -> dict[str, str]:
        """The fields of the next datagram, but for those that tell how far a start with several nodes is."""
        while True:
            lines = self.sock.recv(65536).decode().splitlines()
            found = dict(line.split("=", 1) for line in lines)
            if not found.get("STATUS", "").startswith("starting: "):
                return found


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    yield manager
    manager.sock.close()


def test_it_hears_when_the_broker_serves_and_when_it_stops(tmp_path: Path, manager: Manager) -> None:
    broker = Barnabas(tmp_path / "broker")
    broker.start()
    addresses = ", ".join(f"127.0.0.1:{broker.port + node}" for node in range(broker.processes))
    said = manager.hears()
    assert said["READY"] == "1"
    assert said["STATUS"].startswith(f"serving on {addresses}")
    assert broker.process is not None
    broker.process.send_signal(signal.SIGTERM)
    assert manager.hears() == {"STOPPING": "1", "STATUS": "stopping"}
    assert broker.process.wait(60) == 0


def test_it_is_asked_for_more_time_with_each_step_of_a_recovery(tmp_path: Path, manager: Manager) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")}).recovering(3, 7)
    said = manager.hears()
    assert said["STATUS"] == "recovering: 3 of 7 partitions"
    assert int(said["EXTEND_TIMEOUT_USEC"]) >= 60_000_000


def test_its_watchdog_hears_that_the_event_loop_turns(
    tmp_path: Path, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    with Barnabas(tmp_path / "broker"):
        said = [manager.hears() for _ in range(4)]
    assert said.count({"WATCHDOG": "1"}) >= 3


def test_a_manager_that_is_gone_stops_no_broker(tmp_path: Path, manager: Manager) -> None:
    manager.sock.close()
    broker = Barnabas(tmp_path / "broker")
    broker.start()
    assert broker.stop() == 0


def test_the_unit_starts_what_there_is() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    assert service["Type"] == "notify"
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).name == "barnabas"
    args = parser().parse_args(words)
    assert args.config == "/etc/barnabas/server.properties"


def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    # systemd checks that paths and users exist: this machine has no broker in /opt, and no user barnabas.
    text = UNIT.read_text().replace("/opt/barnabas/bin/barnabas", "/bin/true").replace("User=barnabas", "User=root")
    unit = tmp_path / "barnabas.service"
    unit.write_text(text)
    done = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)
    mine = [line for line in done.stderr.splitlines() if "barnabas" in line]
    assert not mine, done.stderr
