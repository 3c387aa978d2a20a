"""What holds for all tests: none has a limit of time but pytest's own, as a busy machine would break it.

Property tests that take long have fewer examples by default; `--hypothesis-profile full` gives them all of theirs
(`barnabas.wire.tests.strategies.examples`).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

for profile in ("quick", "full"):
    settings.register_profile(profile, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")
# What one process has compiled the others take: without it each broker and each worker compiles the project anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Spark's JVMs of the tests end soon: code compiled quickly takes less of the CPU than code compiled well.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
# A shell that runs the tests in the background has them ignore interrupts, as would all processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: A file system in memory. Tests write to it if this many bytes are free, both there and in the machine's memory.
MEMORY, ROOM = Path("/dev/shm"), 8 << 30
ST_NOEXEC = 8  # statvfs(3); not every Python has it in `os`


def has_room() -> bool:
    """Whether that file system is there with enough free bytes, and allows running programs from it."""
    try:
        _, _, after = Path("/proc/meminfo").read_text().partition("MemAvailable:")
        free = min(int(after.split()[0]) << 10, shutil.disk_usage(MEMORY).free)
        return free >= ROOM and not os.statvfs(MEMORY).f_flag & ST_NOEXEC
    except (OSError, IndexError):  # not Linux
        return False


# Tests sync files more than 100,000 times, and none needs a disk for it: a power loss is simulated, and the files of a
# killed process stay. `make test-slow` sets the variable, so that lane runs all tests on a disk.
if "PYTEST_DEBUG_TEMPROOT" not in os.environ and has_room():
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)


# PyPy has neither the libraries with which these compare, nor Spark, `tracemalloc`, or generations of garbage.
if sys.implementation.name == "pypy":
    collect_ignore = [
        *(f"wire/tests/test_{name}.py" for name in ("batch", "compression", "header", "msgspec_for_pypy", "oracles")),
        *(
            f"broker/tests/test_{name}.py"
            for name in ("driver_process", "frozen", "handshakes", "kernel_tls", "oauthbearer")
        ),
        *(f"broker/tests/test_{name}.py" for name in ("principals_of_certificates", "tls", "tls_transport")),
        "broker/http/tests/test_listener.py",
        "broker/quotas/tests/test_sensors.py",
    ]


#: Folders whose files share a broker with its driver, or a server: one process of pytest has all of their tests.
TOGETHER = ("compat_tests/query_topics/", "compat_tests/offsets/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile` the tests of a file stay together, and those of these folders."""
    from xdist.scheduler import LoadFileScheduling

    class ByServer(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))

    return ByServer(config, log) if config.getvalue("dist") == "loadfile" else None
