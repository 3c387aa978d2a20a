"""All metrics of the broker, as families.

Names are those that Kafka's JMX exporter gives with its usual rules (`kafka_server_brokertopicmetrics_bytesin_total`),
and for consumer groups those of kafka_exporter; other names begin with `barnabas_`. Units are bytes and seconds, except
in Kafka's names that end in `ms`.

A family has at most `MOST_SERIES` series, so that a million partitions or groups do not make an answer of a gigabyte.
If there are more partitions than that, their figures are given by topic; series that are still left out are counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import NamedTuple

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

from barnabas.broker.clock import Clock
from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.identity import Identity
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.jobs.streams import Streams
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import METADATA_TOPIC, MetadataImage
from barnabas.broker.metrics.loop import Holds
from barnabas.broker.metrics.measures import Histogram, quantile
from barnabas.broker.metrics.requests import Answered, RequestCounts
from barnabas.broker.metrics.subscriptions import Subscriptions
from barnabas.broker.metrics.telemetry import ClientTelemetry
from barnabas.broker.metrics.watch import Watch
from barnabas.broker.net.connections import Connections
from barnabas.broker.nodes import Nodes
from barnabas.broker.partitions import Partitions
from barnabas.broker.reading.fetch_sessions import FetchSessions
from barnabas.broker.workers import Yielder
from barnabas.groupcoord.transactions.state import Status
from barnabas.storage.data_dir import DataDir
from barnabas.storage.vnode import Vnode
from barnabas.wire import KAFKA_VERSION
from barnabas.wire.errors import ErrorCode

MOST_SERIES = 10_000
PRODUCE, FETCH = 0, 1
QUANTILES = ("0.5", "0.95", "0.99", "0.999")


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of the broker that the collector reads."""

    identity: Identity
    nodes: Nodes
    metadata: MetadataImage
    partitions: Partitions
    data_dir: DataDir
    connections: Connections
    fetch_sessions: FetchSessions
    groups: Groups
    transactions: Transactions
    queries: Queries
    streams: Streams
    subscriptions: Subscriptions
    telemetry: ClientTelemetry
    clock: Clock
    log: EventLog


class PartitionFigures(NamedTuple):
    """Figures of a partition's log. Offsets and segments are None while the log was not used since the start."""

    topic: str
    partition: int
    size: int
    start: int | None
    end: int | None
    segments: int | None


class Families:
    """The families of one answer: made by name, in order, with a bounded number of series."""

    def __init__(self) -> None:
        self.made: list[Metric] = []
        self._left_out: Counter[str] = Counter()

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Series:
        family = GaugeMetricFamily(name, text, labels=labels)
        self.made.append(family)
        return Series(family, self._left_out)

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Series:
        family = CounterMetricFamily(name, text, labels=labels)
        self.made.append(family)
        return Series(family, self._left_out)

    def histogram(
        self, name: str, text: str, found: Iterable[tuple[Sequence[str], Histogram]], labels: Sequence[str] = ()
    ) -> None:
        family = HistogramMetricFamily(name, text, labels=labels)
        for values, each in found:
            family.add_metric(values, each.buckets(), each.total)
        self.made.append(family)

    def finish(self) -> list[Metric]:
        """All families, and one for the series that were left out."""
        text = f"Series beyond {MOST_SERIES} of a family, which are left out."
        left_out = GaugeMetricFamily("barnabas_metrics_series_left_out", text, labels=["family"])
        for name, count in sorted(self._left_out.items()):
            left_out.add_metric([name], count)
        self.made.append(left_out)
        return self.made


class Series:
    """Adds series to a family, up to its limit."""

    __slots__ = ("_count", "_family", "_left_out")

    def __init__(self, family: GaugeMetricFamily | CounterMetricFamily, left_out: Counter[str]) -> None:
        self._family, self._left_out, self._count = family, left_out, 0

    def add(self, labels: Sequence[str], value: float) -> None:
        if self._count < MOST_SERIES:
            self._count += 1
            self._family.add_metric(labels, value)
        else:
            self._left_out[self._family.name] += 1


class Collector:
    """`await collect()` gives the families. It lets other tasks run, and reads no log."""

    def __init__(self, sources: Sources, counts: RequestCounts, holds: Holds, fsyncs: Histogram, watch: Watch) -> None:
        self._from, self._counts, self._holds, self._fsyncs, self._watch = sources, counts, holds, fsyncs, watch
        self._process = ProcessCollector(registry=None)
        self._started = time.time()
        # Sizes of logs that were not used since the start: until then they do not change.
        self._stored: dict[Vnode, int] = {}

    async def collect(self) -> list[Metric]:
        """All families. Raises OSError if the data directory cannot be read."""
        families = Families()
        self._broker(families)
        self._requests(families)
        await self._topics(families)
        await self._logs(families)
        await self._groups(families)
        await self._transactions(families)
        self._queries(families)
        self._subscriptions(families)
        self._clients(families)
        self._events(families)
        families.made += self._process.collect()
        return families.finish()

    # --- the broker ---------------------------------------------------------------------------------------------------

    def _broker(self, to: Families) -> None:
        sources = self._from
        to.gauge("barnabas_build_info", "The version; the value is always 1.", ["version", "kafka"]).add(
            [version("barnabas"), KAFKA_VERSION], 1
        )
        to.gauge("barnabas_uptime_seconds", "Since the broker's start.").add([], time.time() - self._started)
        here, nodes = sources.identity.node_id, sources.nodes
        to.gauge("kafka_controller_kafkacontroller_activecontrollercount", "1: this node is the controller.").add(
            [], int(nodes.controller_id == here)
        )
        to.gauge("kafka_controller_kafkacontroller_activebrokercount", "Brokers of the cluster.").add(
            [], len({here, *sources.metadata.nodes})
        )
        to.histogram(
            "barnabas_event_loop_hold_seconds",
            "How long the event loop served before it polled again.",
            [((), self._holds.histogram)],
        )
        to.gauge("barnabas_event_loop_longest_hold_seconds", "The longest hold since the start.").add(
            [], self._holds.longest
        )
        to.histogram("barnabas_fsync_seconds", "How long flushes of logs took.", [((), self._fsyncs)])
        to.counter("kafka_log_logflushstats_logflushrateandtimems_count", "Flushes of logs.").add(
            [], self._fsyncs.count
        )
        connections = to.gauge("kafka_server_socketservermetrics_connection_count", "Open connections.", ["listener"])
        for listener in sources.identity.bound:
            connections.add([listener.name], sources.connections.per_listener.get(listener.name, 0))
        accepted = to.counter("barnabas_connections_accepted", "Connections that were accepted.", ["listener"])
        for name, count in sorted(sources.connections.accepted.items()):
            accepted.add([name], count)
        to.counter("barnabas_connections_refused", "Connections that were refused.").add(
            [], sources.connections.refused
        )
        to.gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions that are kept.").add(
            [], len(sources.fetch_sessions)
        )

    # --- requests -----------------------------------------------------------------------------------------------------

    def _requests(self, to: Families) -> None:
        apis = sorted(self._counts.by_api.items())
        answered = {key: each.all_answered() for key, each in apis}
        requests = to.counter("kafka_network_requestmetrics_requests", "Requests.", ["request", "version"])
        for _, each in apis:
            for served, count in sorted(each.requests.items()):
                requests.add([each.name, str(served)], count)
        errors = to.counter(
            "kafka_network_requestmetrics_errors",
            "Errors in answers, of Produce and Fetch by partition.",
            ["request", "error"],
        )
        for key, each in apis:
            for code, count in sorted(answered[key].errors.items()):
                errors.add([each.name, _error(code)], count)
        times = to.gauge(
            "kafka_network_requestmetrics_totaltimems",
            "Milliseconds from a request's arrival to its answer, in the last five minutes.",
            ["request", "quantile"],
        )
        for key, each in apis:
            recent = self._watch.recent(key)
            if any(recent):
                for share in QUANTILES:
                    value = quantile(answered[key].seconds.bounds, recent, float(share))
                    times.add([each.name, share], value * 1000)
        counts = to.counter("kafka_network_requestmetrics_totaltimems_count", "Answers.", ["request"])
        sent = to.counter("kafka_network_requestmetrics_responsebytes", "Bytes of answers.", ["request"])
        for key, each in apis:
            counts.add([each.name], answered[key].seconds.count)
            sent.add([each.name], answered[key].bytes)
        to.histogram(
            "barnabas_request_seconds",
            "From a request's arrival to its answer, including the long poll of Fetch.",
            [([each.name], answered[key].seconds) for key, each in apis],
            ["request"],
        )
        for name, key in (("produce", PRODUCE), ("fetch", FETCH)):
            known = self._counts.by_api.get(key)
            to.counter(f"kafka_server_brokertopicmetrics_total{name}requests", f"{name.capitalize()} requests.").add(
                [], sum(known.requests.values()) if known is not None else 0
            )
            failed = sum(answered[key].errors.values()) if key in answered else 0
            to.counter(
                f"kafka_server_brokertopicmetrics_failed{name}requests",
                f"Errors of partitions in answers to {name.capitalize()}.",
            ).add([], failed)

    # --- topics and logs ----------------------------------------------------------------------------------------------

    async def _topics(self, to: Families) -> None:
        appended = await self._watch.note_appended()
        total = self._watch.total
        got = to.counter(
            "kafka_server_brokertopicmetrics_bytesin",
            "Bytes of appended batches; without a topic, of all topics.",
            ["topic"],
        )
        records = to.counter(
            "kafka_server_brokertopicmetrics_messagesin",
            "Records that were appended; without a topic, to all topics.",
            ["topic"],
        )
        got.add([""], total.bytes)
        records.add([""], total.records)
        for name, each in sorted(appended.items()):
            got.add([name], each.bytes)
            records.add([name], each.records)
        sent = to.counter(
            "kafka_server_brokertopicmetrics_bytesout",
            "Bytes of batches in answers to Fetch; without a topic, of all topics.",
            ["topic"],
        )
        fetched = self._fetched()
        sent.add([""], fetched.total())
        for name in sorted(fetched.keys() & self._from.metadata.topics.keys()):
            sent.add([name], fetched[name])

    def _fetched(self) -> Counter[str]:
        """Bytes sent by topic; those of deleted topics under an empty name, so that the total stays."""
        known = self._counts.by_api.get(FETCH)
        answered = known.all_answered() if known is not None else Answered()
        by_name: Counter[str] = Counter()
        for key, size in answered.fetched.items():
            name = key if isinstance(key, str) else self._from.partitions.topic_name(key)
            by_name[name or ""] += size
        return by_name

    async def _logs(self, to: Families) -> None:
        metadata, data_dir = self._from.metadata, self._from.data_dir
        figures, offline = await self._figures()
        count = sum(len(topic.partitions) for topic in metadata.topics.values())
        to.gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics.").add([], len(metadata.topics))
        to.gauge("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of all topics.").add([], count)
        for name, text in (
            ("partitioncount", "Partitions on this node."),
            ("leadercount", "Partitions that it leads."),
        ):
            to.gauge(f"kafka_server_replicamanager_{name}", text).add([], metadata.led[metadata.node_id])
        to.gauge("kafka_server_replicamanager_underreplicatedpartitions", "Always 0: there is one replica.").add([], 0)
        to.gauge("kafka_server_replicamanager_underminisrpartitioncount", "Partitions that refuse acks=all.").add(
            [],
            sum(
                sum(leader.node == metadata.node_id for leader in metadata.topics[name].partitions.values())
                for name in self._from.partitions.without_enough_replicas
                if name in metadata.topics
            ),
        )
        for name in (
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            "kafka_server_replicamanager_offlinereplicacount",
        ):
            to.gauge(name, "Partitions whose log is offline after a disk error.").add([], offline)
        self._log_series(to, figures)
        by_topic: Counter[str] = Counter()
        for each in figures:
            by_topic[each.topic] += each.size
        disk = to.gauge("barnabas_topic_size_bytes", "Bytes of a topic's logs.", ["topic"])
        for name, size in sorted(by_topic.items()):
            disk.add([name], size)
        total, usable = await trio.to_thread.run_sync(data_dir.disk_space)
        to.gauge("barnabas_disk_size_bytes", "Size of the data directory's disk.").add([], total)
        to.gauge("barnabas_disk_free_bytes", "Free space of the data directory's disk for the broker.").add([], usable)

    def _log_series(self, to: Families, figures: list[PartitionFigures]) -> None:
        if len(figures) > MOST_SERIES:
            return  # their topics' sizes are given instead
        labels = ["topic", "partition"]
        sizes = to.gauge("kafka_log_log_size", "Bytes of a partition's log.", labels)
        starts = to.gauge("kafka_log_log_logstartoffset", "The first offset.", labels)
        ends = to.gauge("kafka_log_log_logendoffset", "The offset of the next record.", labels)
        segments = to.gauge("kafka_log_log_numlogsegments", "Files of records.", labels)
        for each in figures:
            where = [each.topic, str(each.partition)]
            sizes.add(where, each.size)
            for series, value in ((starts, each.start), (ends, each.end), (segments, each.segments)):
                if value is not None:
                    series.add(where, value)

    async def _figures(self) -> tuple[list[PartitionFigures], int]:
        """The figures of all partitions except the metadata log, and how many are offline. Opens no log."""
        yielder = Yielder()
        vnodes = [vnode for vnode in self._from.data_dir.vnodes.values() if vnode.topic != METADATA_TOPIC]
        self._stored = {vnode: self._stored[vnode] for vnode in vnodes if vnode in self._stored and not vnode.loaded}
        closed = [vnode for vnode in vnodes if not vnode.loaded and vnode not in self._stored]
        if closed:
            sizes = await trio.to_thread.run_sync(lambda: [vnode.stored_bytes() for vnode in closed])
            self._stored.update((vnode, size) for vnode, size in zip(closed, sizes, strict=True) if size is not None)
        figures, offline = [], 0
        for vnode in vnodes:
            offline += vnode.error is not None
            if vnode.loaded and vnode.error is None:
                figures.append(
                    PartitionFigures(
                        *(vnode.topic, vnode.partition, vnode.size_bytes),
                        *(vnode.log_start_offset, vnode.log_end_offset, vnode.segment_count),
                    )
                )
            elif vnode in self._stored:
                figures.append(PartitionFigures(vnode.topic, vnode.partition, self._stored[vnode], None, None, None))
            await yielder()
        return figures, offline

    # --- groups and transactions --------------------------------------------------------------------------------------

    async def _groups(self, to: Families) -> None:
        yielder = Yielder()
        states: Counter[str] = Counter()
        members: dict[str, int] = {}
        for group_id, group in list(self._from.groups.coordinator.groups.items()):
            states[group.state_name] += 1
            members[group_id] = group.member_count
            await yielder()
        prefix = "kafka_coordinator_group_groupmetadatamanager"
        to.gauge(f"{prefix}_numgroups", "Groups.").add([], sum(states.values()))
        for name in ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"):
            to.gauge(f"{prefix}_numgroups{name.lower()}", f"Groups in the state {name}.").add([], states[name])
        lags = await self._watch.lags()
        to.gauge(f"{prefix}_numoffsets", "Committed offsets of partitions whose log is open.").add([], len(lags))
        counts = to.gauge("kafka_consumergroup_members", "Members of a group.", ["consumergroup"])
        for name, count in members.items():
            counts.add([name], count)
        labels = ["consumergroup", "topic", "partition"]
        offsets = to.gauge("kafka_consumergroup_current_offset", "Committed offset of a group.", labels)
        lag = to.gauge("kafka_consumergroup_lag", "Records between a group's committed offset and the end.", labels)
        seconds = to.gauge(
            "barnabas_consumergroup_lag_seconds", "Age of the first record that a group has not committed.", labels
        )
        by_topic: Counter[tuple[str, str]] = Counter()
        for each in lags:
            where = [each.group, each.topic, str(each.partition)]
            offsets.add(where, each.offset)
            lag.add(where, each.records)
            seconds.add(where, each.seconds)
            by_topic[each.group, each.topic] += each.records
            await yielder()
        sums = to.gauge("kafka_consumergroup_lag_sum", "Of all partitions of a topic.", ["consumergroup", "topic"])
        for pair, records in by_topic.items():
            sums.add(pair, records)

    async def _transactions(self, to: Families) -> None:
        yielder = Yielder()
        states = Counter({status.told: 0 for status in Status})
        oldest: int | None = None
        for shard in list(self._from.transactions.coordinator.shards.by_partition.values()):
            for transaction in list(shard.transactions.values()):
                state = transaction.state
                states[state.status.told] += 1
                if state.start_ms > 0 and (state.status is Status.ONGOING or state.status.is_prepared):
                    oldest = state.start_ms if oldest is None else min(oldest, state.start_ms)
                await yielder()
        counts = to.gauge(
            "barnabas_transactions", "Transactional ids by the state of their last transaction.", ["state"]
        )
        for name, count in sorted(states.items()):
            counts.add([name], count)
        age = 0.0 if oldest is None else max(0.0, (self._from.clock.wall_ms() - oldest) / 1000)
        to.gauge(
            "barnabas_transaction_oldest_open_seconds", "Age of the oldest open transaction; 0 if none is open."
        ).add([], age)

    # --- queries and streams ------------------------------------------------------------------------------------------

    def _queries(self, to: Families) -> None:
        sources = self._from
        to.gauge("barnabas_query_topics", "Query topics.").add([], len(sources.queries.plans))
        to.gauge("barnabas_streams", "Streams.").add([], len(sources.streams.plans))
        status = sources.queries.status
        told = to.gauge(
            "barnabas_streams_driver_status_age_seconds", "Time since the driver's last status; -1: there is none."
        )
        told.add([], -1.0 if status is None else (sources.clock.wall_ms() - status.at_ms) / 1000)
        kinds: tuple[tuple[str, Mapping[str, Figures]], ...] = (
            ("query", {} if status is None else {each.topic: _figures_of(each) for each in status.queries}),
            ("stream", {} if status is None else {each.topic: _figures_of(each) for each in status.streams}),
        )
        for kind, found in kinds:
            _tell_jobs(to, kind, {name: each for name, each in found.items() if name in sources.metadata.topics})

    # --- binary logs ------------------------------------------------------------------------------------------------

    def _subscriptions(self, to: Families) -> None:
        now = self._from.clock.wall_ms() / 1000
        labels = ["subscription"]
        behind = to.gauge(
            "barnabas_binlog_lag_seconds", "From when the server made the last event until its topic had it.", labels
        )
        rate = to.gauge("barnabas_binlog_messages_per_second", "Messages written, before the last report.", labels)
        age = to.gauge("barnabas_binlog_report_age_seconds", "Time since the subscription's last report.", labels)
        states = to.gauge("barnabas_binlog_state", "1 for its current state.", [*labels, "state"])
        for name, report in sorted(self._from.subscriptions.reports.items()):
            behind.add([name], report.behind)
            rate.add([name], report.per_second)
            age.add([name], max(0.0, now - report.at))
            states.add([name, report.state_at(now)], 1)

    # --- what clients push ------------------------------------------------------------------------------------------

    def _clients(self, to: Families) -> None:
        found = self._from.telemetry.current(trio.current_time())
        to.gauge("barnabas_client_instances", "Clients that push metrics of their own (KIP-714).").add([], len(found))
        labels = ["metric", "client_id", "client_instance_id", "client_software", "labels"]
        values = to.gauge("barnabas_client_metric", "The newest value of a metric that a client pushes.", labels)
        for each in found:
            software = f"{each.client['client_software_name']} {each.client['client_software_version']}"
            who = [each.client["client_id"][:200], each.client["client_instance_id"], software]
            for (name, given), value in each.values.items():
                values.add([name, *who, ",".join(f"{key}={text}" for key, text in given)], value)

    # --- what the log says --------------------------------------------------------------------------------------------

    def _events(self, to: Families) -> None:
        events = to.counter(
            "barnabas_log_events",
            "Lines of the broker's log by level and event: findings of recovery, compaction, damage, full disks.",
            ["level", "event"],
        )
        by_level = Counter(dict.fromkeys(("error", "info", "warning"), 0))
        for (level, event), count in sorted(self._from.log.told.items()):
            if level in by_level:
                events.add([level, event], count)
                by_level[level] += count
        lines = to.counter("barnabas_log_lines", "Lines of the log by level.", ["level"])
        for level, count in by_level.items():
            lines.add([level], count)


class Figures(NamedTuple):
    """The figures of a query or a stream."""

    state: str
    lag: int | None
    rows: int
    rows_per_second: float
    batch_ms: float
    lost: int
    has_error: bool


def _figures_of(status: object) -> Figures:
    """The figures in a `QueryStatus` or a `StreamStatus`."""
    lost = getattr(status, "dead_letters", 0) + getattr(status, "ignored", 0) + getattr(status, "late", 0)
    values = (getattr(status, name) for name in ("state", "lag", "rows", "rows_per_second", "batch_ms"))
    return Figures(*values, lost, getattr(status, "last_error", None) is not None)  # type: ignore[call-arg]


def _tell_jobs(to: Families, kind: str, found: Mapping[str, Figures]) -> None:
    lag = to.gauge(f"barnabas_{kind}_lag", "Records of the source that are not processed yet.", ["topic"])
    rows = to.counter(f"barnabas_{kind}_rows", "Records processed since the driver started.", ["topic"])
    batch = to.gauge(f"barnabas_{kind}_batch_seconds", "How long the last batch took.", ["topic"])
    lost = to.counter(
        f"barnabas_{kind}_left_out",
        "Dead letters of a query; of a stream, records that came late or have no place.",
        ["topic"],
    )
    failing = to.gauge(f"barnabas_{kind}_failing", "1 while it has a last error.", ["topic"])
    states = to.gauge(f"barnabas_{kind}_state", "1 for its current state.", ["topic", "state"])
    for name, each in sorted(found.items()):
        if each.lag is not None:
            lag.add([name], each.lag)
        rows.add([name], each.rows)
        batch.add([name], each.batch_ms / 1000)
        lost.add([name], each.lost)
        failing.add([name], each.has_error)
        states.add([name, each.state], 1)


def _error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


class Collected:
    """Collected families, in the form that prometheus_client's encoders need."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)
