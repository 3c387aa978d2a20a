"""Answers the broker's checks of new queries and streams. Questions that only Spark can answer wait until it has
started; all others are answered in the meantime.
"""

from __future__ import annotations

import msgspec

from barnabas.client.cluster import Cluster
from barnabas.streams.query.analyses import Analyses
from barnabas.streams.query.analysis import ALL_TOPICS, over_pattern
from barnabas.streams.query.control import Control
from barnabas.streams.query.definitions import Source, is_compacted, read_pattern, read_source
from barnabas.streams.query.errors import NoSparkError, QueryError, StartingError
from barnabas.streams.windows.manager import Streams
from barnabas.streams.windows.plain import Given
from barnabas.streams.windows.plan import Planned, check_fits
from barnabas.wire.queries.messages import Answer, Check, Checked, CheckedStream, CheckStream, Question
from barnabas.wire.streams.clauses import Clauses
from barnabas.wire.streams.plan import EARLIEST as EARLIEST_START
from barnabas.wire.streams.plan import LATEST as LATEST_START
from barnabas.wire.streams.plan import JoinedReads
from barnabas.wire.streams.tokens import problem

#: The most questions that wait for Spark. A broker repeats unanswered ones.
_MOST_WAITING = 1000


class Questions:
    """Takes questions, and answers them through `control`."""

    def __init__(self, cluster: Cluster, control: Control, analyses: Analyses, streams: Streams) -> None:
        self._cluster, self._control, self._analyses, self._streams = cluster, control, analyses, streams
        self._waiting: dict[str, Question] = {}

    def hear(self, question: Question) -> None:
        """Answer a question, or keep it until Spark is up."""
        try:
            self._control.say(self._answer(question))
        except StartingError:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting[question.id] = question

    def look(self) -> None:
        """Answer the waiting questions as far as possible."""
        waiting, self._waiting = self._waiting, {}
        for question in waiting.values():
            self.hear(question)

    def _answer(self, question: Question) -> Answer:
        """The answer to a question. Raises StartingError."""
        tried: list[str] = []
        answered = Checked if isinstance(question, Check) else CheckedStream
        try:
            if isinstance(question, Check):
                return self._checked(question, tried)
            return self._checked_stream(question, tried)
        except NoSparkError as error:
            return answered(id=question.id, no_spark=str(error), tried=tuple(tried))

    def _checked(self, question: Check, tried: list[str]) -> Checked:
        """Whether a query is possible, and what it reads and returns; `tried` gets the topics that it would read."""
        reads: dict[str, str] = {}
        try:
            query, over = over_pattern(question.query)
            reads = {"pattern": over} if over is not None else {}
            name = self._analyses.source_of(query)
            if over is None:
                tried.append(name)
            if name == question.topic:
                raise QueryError(f"{name} cannot read itself")
            if (over is not None) != (name == ALL_TOPICS):
                raise QueryError("topics('PATTERN') stands behind FROM")
            if over is not None:
                values = read_pattern(self._cluster, over, question.topic)
            else:
                source = read_source(self._cluster, name)
                values, reads = source.values, {"source": name, "source_id": source.topic_id}
            found = self._analyses.facts(query, name, values)
        except QueryError as error:
            return Checked(id=question.id, error=str(error), tried=tuple(tried), **reads)
        return Checked(
            id=question.id,
            tried=tuple(tried),
            output_format=found.value_format,
            output_schema=found.value_schema,
            **reads,
            **msgspec.structs.asdict(values),
        )

    def _checked_stream(self, question: CheckStream, tried: list[str]) -> CheckedStream:
        """Whether a stream is possible, and what it reads and returns."""

        def read(name: str) -> Source:
            tried.append(name)
            return read_source(self._cluster, name)

        joined: JoinedReads | None = None
        planned: Given | Planned
        try:
            plainly = self._streams.check_plainly(question.stream, read)
            if plainly is not None:
                clauses, source, planned = plainly
            else:
                clauses, source, joined, planned = self._analyses.by_spark(
                    lambda _, text: self._streams.check(text, read),
                    question.stream,
                )
            self._check_table(clauses)
            check_fits(question.topic, question.schema, planned.value_schema)
        except QueryError as error:
            return CheckedStream(id=question.id, error=str(error), tried=tuple(tried))
        return CheckedStream(
            id=question.id,
            tried=tuple(tried),
            source=source.name,
            source_id=source.topic_id,
            begins=EARLIEST_START if clauses.fill_history else LATEST_START,
            joined=joined,
            output_format=planned.value_format,
            output_schema=planned.value_schema,
            **msgspec.structs.asdict(source.values),
        )

    def _check_table(self, clauses: Clauses) -> None:
        """Raises QueryError for a table that would lose rows: its topic must keep each key's latest value."""
        join = clauses.join
        if join is not None and join.is_table and not is_compacted(self._cluster, join.source):
            what = (
                f"{join.source} is not compacted, so it cannot be a table: set cleanup.policy=compact, or write "
                f"WITHIN 10s "
                "to join each of its records"
            )
            raise QueryError(str(problem(clauses.text, join.at, what)))
