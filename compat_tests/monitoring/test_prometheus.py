"""A real Prometheus reads a broker: the metrics exist, the dashboard's queries return data, the alerts fire."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from compat_tests.broker_process import Barnabas
from compat_tests.tools import ROOT, missing, program_of_prometheus
from compat_tests.waiting import until

DEPLOY = ROOT / "docs" / "deploy"
ALERTS, DASHBOARD = DEPLOY / "alerts.yml", DEPLOY / "grafana.json"
RULE_TESTS = Path(__file__).parent / "alerts_test.yml"
#: Metrics without a series on a broker that has no queries, streams, errors or refused clients.
EMPTY = re.compile(r"barnabas_(query|stream)_|requestmetrics_errors_total")

pytestmark = [
    pytest.mark.skipif(missing("prometheus") is not None, reason=missing("prometheus") or ""),
    pytest.mark.one_node("each node has metrics of its own, and it reads those of one"),
]


def promtool(*words: str) -> str:
    """The output of promtool, which must not find an error."""
    tool = program_of_prometheus("promtool")
    assert tool is not None
    done = subprocess.run([tool, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """The server, with its data in a folder. It scrapes `target`, and has the alerts."""

    def __init__(self, folder: Path, target: str) -> None:
        program = program_of_prometheus("prometheus")
        assert program is not None
        config = folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 200ms, evaluation_interval: 200ms}\n"
            f"rule_files: [{ALERTS}]\n"
            f"scrape_configs: [{{job_name: barnabas, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        self._log = (folder / "log").open("w")
        command = [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
        self._process = subprocess.Popen(
            [*command, "--web.listen-address=127.0.0.1:0"], stdout=self._log, stderr=subprocess.STDOUT
        )
        found: list[str] = []

        def listens() -> bool:
            assert self._process.poll() is None, (folder / "log").read_text()
            found[:] = re.findall(r'msg="Listening on" address=(\S+)', (folder / "log").read_text())
            return bool(found)

        until(listens, "Prometheus listens")
        self.url = f"http://{found[0]}"
        until(self._is_ready, "Prometheus is ready")

    def _is_ready(self) -> bool:
        """Whether it answers questions: it listens before it has read its data."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=60):
                return True
        except urllib.error.HTTPError:
            return False

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=60) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        result: list[dict[str, Any]] = told["data"]["result"]
        return result

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._log.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    """A broker with some history: a topic, a group with a lag, a client that asked for an unknown topic."""
    server = Barnabas(tmp_path_factory.mktemp("broker"), {"barnabas.http.listen": "127.0.0.1:0"})
    server.start()
    producer = Producer({"bootstrap.servers": server.address})
    for number in range(100):
        producer.produce("orders", str(number))
    producer.flush(60)
    consumer = Consumer(
        {"bootstrap.servers": server.address, "group.id": "billing", "auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False}
    )
    consumer.subscribe(["orders"])
    read = consumer.consume(10, 60)
    assert len(read) == 10
    consumer.commit(read[-1], asynchronous=False)
    yield server
    consumer.close()
    server.stop()


@pytest.fixture(scope="module")
def http(broker: Barnabas) -> str:
    """HOST:PORT of its HTTP listener."""
    (url,) = re.findall(r"HTTP is on http://(\S+)/", broker.log_file.read_text())
    assert isinstance(url, str)
    return url


@pytest.fixture(scope="module")
def prometheus(http: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), http)
    until(lambda: bool(server.ask("rate(barnabas_uptime_seconds[1m])")), "two scrapes")
    yield server
    server.close()


def test_the_names_and_kinds_are_as_prometheus_wants_them(http: str) -> None:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=60) as answer:
        text = answer.read()
    tool = program_of_prometheus("promtool")
    assert tool is not None
    done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    # Some names of Kafka's exporter break Prometheus's conventions; they stay as users know them.
    own = [line for line in done.stdout.decode().splitlines() + done.stderr.decode().splitlines() if "barnabas" in line]
    assert not own


def test_promtool_finds_no_fault_in_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(ALERTS))


def test_each_alert_fires_when_it_should_and_only_then() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(RULE_TESTS))
    alerts = set(re.findall(r"alert: (\w+)", ALERTS.read_text()))
    assert set(re.findall(r"alertname: (\w+)", RULE_TESTS.read_text())) == alerts


def expressions() -> list[str]:
    """Every query of the dashboard, with its variables filled in."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(found) > 25
    return [each.replace("$instance", ".*").replace("$__rate_interval", "1m") for each in found]


@pytest.mark.parametrize("expression", expressions())
def test_the_dashboards_questions_have_answers(prometheus: Prometheus, expression: str) -> None:
    if EMPTY.search(expression):
        prometheus.ask(expression)  # Prometheus can parse the query
    else:
        until(lambda: bool(prometheus.ask(expression)), f"an answer to {expression}")


def test_the_lag_of_a_group(prometheus: Prometheus) -> None:
    (lag,) = prometheus.ask('kafka_consumergroup_lag_sum{consumergroup="billing"}')
    assert lag["value"][1] == "90"


def test_no_alert_fires_for_a_broker_that_is_well(prometheus: Prometheus) -> None:
    until(lambda: bool(prometheus.ask('up{job="barnabas"} == 1')), "a scrape")
    firing = {each["metric"]["alertname"] for each in prometheus.ask('ALERTS{alertstate="firing"}')}
    # The disk of the tests' machine may be nearly full.
    assert firing <= {"DiskFull", "DiskFullSoon"}
