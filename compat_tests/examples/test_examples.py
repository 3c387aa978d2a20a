"""The examples that need only a broker: orders and invoices, the tests of a service."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin import create_topic
from barnabas.client.cluster import Cluster
from compat_tests.broker_process import Barnabas
from compat_tests.examples.running import EXAMPLES, Running, python, run
from compat_tests.java.tools import program
from compat_tests.streams.support import records
from compat_tests.tools import missing

ORDERS = 1000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Barnabas]:
    with Barnabas(tmp_path) as server:
        yield server


@pytest.mark.parametrize("language", ["python", pytest.param("java", marks=pytest.mark.long)])
def test_each_order_becomes_one_invoice_whatever_is_killed(language: str, broker: Barnabas) -> None:
    if language == "java" and (reason := missing("java")):
        pytest.skip(reason)
    with Cluster(broker.address) as cluster:
        for topic in ("orders", "invoices"):
            create_topic(cluster, topic, {}, partitions=3)
    invoices = python("orders", "invoices.py", broker.address)
    if language == "java":
        invoices = program(EXAMPLES / "orders" / "Invoices.java", broker.address)
    for _ in range(2):
        run(python("orders", "shop.py", broker.address, str(ORDERS)))  # a slow kill may let a pipeline finish them all
        with Running(invoices) as pipeline:
            pipeline.until_printed(1)  # most kills hit a later round
    run([*invoices, "--until-idle"])
    found = [json.loads(value) for _, value in records(broker, "invoices", 3)]
    assert sorted(invoice["order"] for invoice in found) == sorted(2 * list(range(ORDERS)))
    assert {invoice["paid"] for invoice in found} == {False}


def test_the_tests_of_the_service_pass(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="fastapi is not installed: make setup-test")
    folder = shutil.copytree(EXAMPLES / "service_tests", tmp_path / "service")
    told = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", str(folder)])
    assert "3 passed" in told
