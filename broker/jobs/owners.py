"""The owners of query topics and streams. An owner must have the rights to read the sources and to write the results.

    made or changed -> the asker's rights are checked -> `barnabas.owner` in the topic's configuration
    ACLs or topics change -> the owners' rights are checked again -> `barnabas.denied` is set, or removed
    the driver learns of the configuration -> the query stops with that reason, or continues

While a right is missing, the broker refuses the driver's results, so nothing is written without a right. The topic with
a query's dead letters contains values of its sources: its readers need the right to read those, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import trio

from barnabas.broker.jobs.queries import Queries
from barnabas.broker.jobs.streams import Streams, is_stream
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import RESOURCE_TOPIC, Listener, MetadataImage, TopicImage
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.security.askers import Asker, parse_asker
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.operations import READ_TOPIC, WRITE_TOPIC
from barnabas.broker.workers import Yielder
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.queries.keys import DENIED, OWNER
from barnabas.wire.queries.plan import QueryPlan, plan_of
from barnabas.wire.streams.plan import stream_plan_of
from barnabas.wire.types import Message

# Values for the version of rights, which no authorizer uses.
_UNKNOWN, _NO_AUTHORIZER = -2, -1


def check_owner(current: Mapping[str, str], target: Mapping[str, str], asker: Asker) -> None:
    """Raises KafkaError INVALID_CONFIG for a change of keys that only the broker sets, unless the asker takes over."""
    if is_stream(current) and not is_stream(target):  # the keys of a stream are removed with it
        return
    if current.get(DENIED) != target.get(DENIED):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{DENIED} is set by the broker: leave it out.")
    if current.get(OWNER) == target.get(OWNER):
        return
    if OWNER not in current or target.get(OWNER) not in (str(asker.principal), str(asker)):
        what = f"set it to {asker.principal} to take over" if OWNER in current else "leave it out"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{OWNER} is set by the broker: {what}.")


class Owners(Listener):
    """The owners of all query topics and streams, and the rights that they lack."""

    def __init__(
        self, metadata: MetadataImage, topics: TopicManager, queries: Queries, streams: Streams, log: EventLog
    ) -> None:
        self._metadata, self._topics, self._queries, self._streams, self._log = metadata, topics, queries, streams, log
        self.authorizer: Authorizer | None = None
        self._version = _UNKNOWN
        self._look = trio.Event()
        #: By topic: the problem, or None, as found since the last change of rights or topics.
        self._problems: dict[str, str | None] = {}

    # --- making -------------------------------------------------------------------------------------------------------

    def check(self, asker: Asker, name: str, configs: dict[str, str | None], api: str) -> None:
        """Make the asker the owner of a query or stream with this plan. Raises KafkaError if it lacks a right."""
        self.check_reads(asker, self._sources(name, configs), api)
        if not asker.may(self.authorizer, WRITE_TOPIC, name, api=api):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{asker.principal} may not WRITE {name}")
        configs[OWNER] = str(asker)
        configs.pop(DENIED, None)

    def check_reads(self, asker: Asker, sources: Sequence[str], api: str) -> None:
        """Raises KafkaError if the asker may not read a source, whether the source exists or not."""
        for source in sources:
            if not asker.may(self.authorizer, READ_TOPIC, source, api=api):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{asker.principal} may not READ {source}")

    # --- while it runs ------------------------------------------------------------------------------------------------

    def problem(self, name: str) -> str | None:
        """The reason why the results of a query or stream may not be written now; None if they may."""
        if name not in self._problems:
            self._problems[name] = self._find_problem(name)
        return self._problems[name]

    def _find_problem(self, name: str) -> str | None:
        topic = self._metadata.topics.get(name)
        if self.authorizer is None or topic is None:
            return None
        plan = plan_of(topic.configs)
        if plan is not None and plan.dead_letter_of:
            query = self._query_of(plan)
            return None if query is None else self.problem(query.name)
        if plan is None and stream_plan_of(topic.configs) is None:
            return None
        owner = parse_asker(topic.configs.get(OWNER))
        for source in self._sources(name, topic.configs):
            if not owner.may(self.authorizer, READ_TOPIC, source):
                # Not everybody who may see this reason may know which topics match a pattern.
                what = f"a topic that {plan.pattern} matches" if plan is not None and plan.pattern else source
                return f"{owner.principal} may not READ {what}"
        if not owner.may(self.authorizer, WRITE_TOPIC, name):
            return f"{owner.principal} may not WRITE {name}"
        return None

    def shown_by(self, name: str) -> Sequence[str]:
        """The topics whose values a topic contains: for the dead letters of a query, its sources."""
        topic = self._metadata.topics.get(name)
        plan = None if topic is None else plan_of(topic.configs)
        query = None if plan is None or not plan.dead_letter_of else self._query_of(plan)
        return () if query is None else self._sources(query.name, query.configs)

    def _query_of(self, letters: QueryPlan) -> TopicImage | None:
        """The query topic whose dead letters a topic has."""
        for name in self._queries.plans:
            topic = self._metadata.topics.get(name)
            if topic is not None and letters.is_of(topic.topic_id):
                return topic
        return None

    def _sources(self, name: str, configs: Mapping[str, str | None]) -> list[str]:
        """The topics that a query or stream with this plan reads now."""
        given = {key: value for key, value in configs.items() if value is not None}
        stream = stream_plan_of(given)
        if stream is not None:
            return list(stream.sources)
        plan = plan_of(given)
        if plan is None:
            return []
        if not plan.pattern:
            return [plan.source] if plan.source else []
        return [topic.name for topic in self._queries.matching(plan.pattern) if topic.name != name]

    # --- changes ------------------------------------------------------------------------------------------------------

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        if before is None or after is None or before.configs != after.configs:
            self._version = _UNKNOWN

    def change_applied(self) -> None:
        """Check the owners' rights again, if the rights or the topics have changed."""
        version = _NO_AUTHORIZER if self.authorizer is None else self.authorizer.version
        if self._version != version:
            self._version = version
            self._problems.clear()
            if self.authorizer is not None:
                self.authorizer.forget()
            self._look.set()

    async def run(self) -> None:
        """Keep `barnabas.denied` up to date with the owners' rights, until cancelled."""
        while True:
            await self._look.wait()
            self._look = trio.Event()
            breathe = Yielder()
            for name in list(self._jobs()):
                await breathe()
                if self._is_other(name):
                    await self._set(name)

    def _jobs(self) -> Iterator[str]:
        yield from self._queries.plans
        yield from self._streams.plans

    def _is_other(self, name: str) -> bool:
        """Whether `barnabas.denied` in a topic's configuration is out of date."""
        topic = self._metadata.topics.get(name)
        return topic is not None and topic.configs.get(DENIED) != self.problem(name)

    async def _set(self, name: str) -> None:
        async with self._topics.changes:
            if not self._is_other(name):
                return
            problem = self.problem(name)
            change: list[Message] = [self._metadata.config_record(RESOURCE_TOPIC, name, DENIED, problem)]
            try:
                await self._topics.commit(change)
            except KafkaError as error:  # the results are refused anyway
                self._log.error("owner.not_told", topic=name, error=error)
                return
        if problem is None:
            self._log.info("owner.allowed", topic=name)
        else:
            self._log.warning("owner.denied", topic=name, reason=problem)
