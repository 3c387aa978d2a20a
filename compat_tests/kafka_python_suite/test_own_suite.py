"""kafka-python's own integration tests, from its source distribution, against one broker with 4 partitions a topic.

`passing.txt` lists the tests that pass. It only grows: a listed test that fails fails this one, and tests that pass
without being listed are printed, to be added.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from compat_tests.apache_kafka import free_ports
from compat_tests.conftest import NewServer
from compat_tests.tools import kafka_python_source, missing

HERE = Path(__file__).resolve().parent
PASSING = HERE / "passing.txt"
KAFKA_VERSION = "4.2.0"
DEADLINE = 280
# What the suite's own fixtures would set on the broker that they start.
SETTINGS = {"num.partitions": "4", "node.id": "0", "group.min.session.timeout.ms": "1000"}


@pytest.mark.timeout(DEADLINE + 20)
def test_own_suite(new_server: NewServer, tmp_path: Path) -> None:
    if reason := missing("kafka-python-source"):
        pytest.skip(reason)
    (port,) = free_ports(1)
    server = new_server({**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}, port)
    source = kafka_python_source()
    shutil.copy(HERE / "service.py", source / "test" / "service.py")
    (source / "test" / "__init__.py").touch()  # else the standard library's package of that name is found
    found = tmp_path / "results.xml"
    (source / "servers" / KAFKA_VERSION / "kafka-bin").mkdir(parents=True, exist_ok=True)  # where it would start one
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "test/integration", "-q", "-p", "no:cacheprovider", "--tb=short",
            "-o", "addopts=", "--timeout=60", f"--junit-xml={found}", "-W", "ignore",
        ],
        cwd=source, capture_output=True, text=True, timeout=DEADLINE,
        env={
            **os.environ, "KAFKA_URI": f"kafka://{server.address}", "KAFKA_VERSION": KAFKA_VERSION,
            "PYTHONPATH": str(source), "PYTEST_ADDOPTS": "",
        },
    )  # fmt: skip
    assert found.exists(), done.stdout + done.stderr
    passed = _passed(found)
    listed = set(PASSING.read_text().split())
    fresh = sorted(passed - listed)
    if fresh:
        print("pass and are not in passing.txt yet:", *fresh, sep="\n")
    lost = sorted(listed - passed)
    assert not lost, f"passed before: {', '.join(lost)}\n{done.stdout[-20000:]}"
    print(done.stdout.strip().splitlines()[-1])


def _passed(results: Path) -> set[str]:
    """Ids of the tests that passed; random parts of parameters are left out."""
    ids = set()
    for case in ET.parse(results).getroot().iter("testcase"):
        if not any(case.find(kind) is not None for kind in ("failure", "error", "skipped")):
            ids.add(f"{case.get('classname')}::{case.get('name')}")
    return {re.sub(r"\s+", "_", name) for name in ids}
