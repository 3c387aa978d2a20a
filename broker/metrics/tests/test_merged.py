"""One page with the metrics of several nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import exposition as plain
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from barnabas.broker.metrics.merged import merged

FORMATS: dict[str, tuple[Any, Any]] = {
    "text": (plain.generate_latest, plain_families),
    "openmetrics": (openmetrics.generate_latest, openmetrics_families),
}
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Told:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def page(families: list[Metric], write: Callable[[CollectorRegistry], bytes]) -> bytes:
    registry = CollectorRegistry()
    registry.register(Told(families))
    return write(registry)


def series(families: Iterable[Metric], **more: str) -> Series:
    return {
        (each.name, tuple(sorted({**each.labels, **more}.items()))): each.value
        for family in families
        for each in family.samples
    }


def families_of(values: dict[str, float]) -> list[Metric]:
    """A family of each kind: with labels and without, and one without series where there are no values."""
    gauge = GaugeMetricFamily("some_gauge", 'It says "so" \\ and\nmore.', labels=["topic"])
    counter = CounterMetricFamily("some_counter", "It counts.")
    buckets = HistogramMetricFamily("some_seconds", "It takes.", labels=[])
    for topic, value in values.items():
        gauge.add_metric([topic], value)
    counter.add_metric([], float(len(values)))
    buckets.add_metric([], [("1.0", 1), ("+Inf", 2)], 2.5)
    return [gauge, counter, buckets]


@pytest.mark.parametrize("kind", FORMATS)
@given(nodes=st.dictionaries(st.integers(0, 9), st.dictionaries(st.text(max_size=8), st.floats(-9, 9)), min_size=1))
def test_the_page_has_the_series_of_all_with_their_node(kind: str, nodes: dict[int, dict[str, float]]) -> None:
    write, read = FORMATS[kind]
    text = merged({node: page(families_of(values), write) for node, values in nodes.items()})
    expected: Series = {("barnabas_node_up", (("node", str(node)),)): 1.0 for node in nodes}
    for node, values in nodes.items():
        own = read(page(families_of(values), write).decode())
        expected |= series(own, node=str(node))
    found = list(read(text.decode()))
    assert series(found) == expected
    assert len({each.name for each in found}) == len(found), "each family stands there once"


@pytest.mark.parametrize("kind", FORMATS)
def test_a_node_that_does_not_answer_is_told_of(kind: str) -> None:
    write, read = FORMATS[kind]
    text = merged({1: None, 2: page(families_of({"t": 1.0}), write)})
    found = series(read(text.decode()))
    assert found["barnabas_node_up", (("node", "1"),)] == 0
    assert found["barnabas_node_up", (("node", "2"),)] == 1
    assert {dict(labels)["node"] for name, labels in found if name != "barnabas_node_up"} == {"2"}
