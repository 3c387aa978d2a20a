"""kafka-python's own integration tests, from its source distribution, against one broker with 4 partitions a topic.

`passing.txt` lists the tests that pass. It only grows: a listed test that fails fails this one, and tests that pass
without being listed are printed, to be added.

A listed test that fails is run again, at most twice: kafka-python 3.0.12 forgets a `subscribe()` that comes while the
answer to its bootstrap metadata request is on its way (`ClusterMetadata.set_topics` says so itself), and then reads
nothing for five minutes, from any broker. With a broker that answers within a millisecond, this happens in one run of
twenty.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

import pytest

from compat_tests.broker_process import Barnabas, following_free_ports
from compat_tests.conftest import NewServer
from compat_tests.tools import kafka_python_source, missing

HERE = Path(__file__).resolve().parent
PASSING = HERE / "passing.txt"
KAFKA_VERSION = "4.3.1"
DEADLINE = 280
#: With several nodes there is a node to which a partition can go.
ONE_NODE = {"test.integration.test_admin_integration::test_alter_partition_reassignments"}
# The settings that the suite's own fixtures give to the broker that they start.
SETTINGS = {"num.partitions": "4", "node.id": "0", "group.min.session.timeout.ms": "1000"}


@pytest.mark.timeout(2 * DEADLINE)
@pytest.mark.long
def test_own_suite(new_server: NewServer, tmp_path: Path) -> None:
    if reason := missing("kafka-python-source"):
        pytest.skip(reason)
    port = following_free_ports(Barnabas.processes)
    server = new_server({**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}, port)
    source = kafka_python_source()
    shutil.copy(HERE / "service.py", source / "test" / "service.py")
    (source / "test" / "__init__.py").touch()  # otherwise the standard library's package of that name is found
    (source / "servers" / KAFKA_VERSION / "kafka-bin").mkdir(parents=True, exist_ok=True)  # must exist
    listed = set(PASSING.read_text().split())
    if server.processes > 1:
        listed -= ONE_NODE
    passed, output = _run(source, server.address, ["test/integration"], tmp_path / "results.xml")
    print(output.strip().splitlines()[-1])
    if fresh := sorted(passed - listed):
        print("pass and are not in passing.txt yet:", *fresh, sep="\n")
    for attempt in range(2):
        if lost := sorted(listed - passed):
            print("run again:", *lost, sep="\n")
            again, output = _run(source, server.address, map(_node_id, lost), tmp_path / f"results-{attempt}.xml")
            passed |= again
    lost = sorted(listed - passed)
    assert not lost, f"passed before: {', '.join(lost)}\n{output[-20000:]}"


def _run(source: Path, address: str, tests: Iterable[str], found: Path) -> tuple[set[str], str]:
    """Run `tests` of the unpacked `source` against `address`: the ids of those that passed, and what pytest printed."""
    settings = ["-p", "no:cacheprovider", "-o", "addopts=", "-W", "ignore", "--timeout=60"]
    shown = ["-q", "--tb=short", f"--junit-xml={found}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *tests, *settings, *shown],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={
            **os.environ,
            "KAFKA_URI": f"kafka://{address}",
            "KAFKA_VERSION": KAFKA_VERSION,
            "PYTHONPATH": str(source),
            "PYTEST_ADDOPTS": "",
        },
    )
    assert found.exists(), done.stdout + done.stderr
    return _passed(found), done.stdout


def _node_id(test: str) -> str:
    module, name = test.split("::")
    return f"{module.replace('.', '/')}.py::{name}"


def _passed(results: Path) -> set[str]:
    """Ids of the tests that passed; random parts of parameters are left out."""
    ids = set()
    for case in ET.parse(results).getroot().iter("testcase"):
        if not any(case.find(kind) is not None for kind in ("failure", "error", "skipped")):
            ids.add(f"{case.get('classname')}::{case.get('name')}")
    return {re.sub(r"\s+", "_", name) for name in ids}
