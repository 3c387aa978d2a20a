"""All streams of one driver: groups them into queries, starts these one after the other, checks them, and restarts them
after failures. Queries without work rest (resting.py).

Starting, stopping and regrouping take seconds, so they happen in their own thread; the driver's loop only checks the
state. After each failure a query waits longer, as query topics do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Sequence
from functools import partial

import msgspec
from pyspark.sql import SparkSession

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.offsets import LATEST, list_offsets
from barnabas.streams.java import JavaError, check_java
from barnabas.streams.query.definitions import Catalog, Source, StreamDefinition
from barnabas.streams.query.errors import FatalError, QueryError, reason_of
from barnabas.streams.query.health import FAILED, RUNNING, now
from barnabas.streams.query.lazy_spark import LazySpark
from barnabas.streams.windows.checkpoint import remove_others
from barnabas.streams.windows.copier import Copier
from barnabas.streams.windows.groups import Group, Groups, Joined, kind_of, names, new_group
from barnabas.streams.windows.plain import Given, given
from barnabas.streams.windows.plan import MemberError, Planned, check, parsed
from barnabas.streams.windows.resting import resting
from barnabas.streams.windows.restoring import restored
from barnabas.streams.windows.runner import Home, Runner
from barnabas.streams.windows.session import streams_session
from barnabas.streams.windows.slots import fits, slots_for
from barnabas.streams.windows.tasks import Tasks
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.queries.messages import StreamStatus
from barnabas.wire.streams import keys
from barnabas.wire.streams.clauses import Clauses
from barnabas.wire.streams.event_time import meant_time
from barnabas.wire.streams.joins import Join
from barnabas.wire.streams.plan import JoinedReads

Say = Callable[..., None]
STARTING, WAITING, LAGGING = "STARTING", "WAITING", "LAGGING"
_ASK_SECONDS = 1.0
_AGAIN_SECONDS = 5.0
# How many seconds a new stream has to appear before the query that it may share continues without it.
_HOLD_SECONDS = 5.0
#: After this many consecutive failures, a query's streams separate, so that only the faulty one fails.
_PART_AFTER = 4
#: Spark's message for an idle worker that died with its daemon. Each start discovers one of them.
_DEAD_WORKER = "Stream closed"
#: Seconds between two copies of a checkpoint.
COPY_SECONDS = 180.0


class Streams:
    """The streams of one broker."""

    def __init__(
        self,
        spark: LazySpark,
        home: Home,
        *,
        trigger_ms: int,
        most: int,
        copy_seconds: float = COPY_SECONDS,
        init: Callable[[SparkSession], None] | None = None,
    ) -> None:
        self._spark, self._home, self._say = spark, home, home.say
        self._trigger_ms, self._most, self._init = trigger_ms, most, init
        self._copier = Copier(home.copies, copy_seconds, home.say)
        self._made: SparkSession | None = None
        self._groups = Groups(home.data_dir)
        self._catalog = Catalog({}, {})
        self._known = self._catalog  # the thread's version, which does not change while streams are arranged
        self._runners: list[Runner] | None = None  # None until the first streams are known
        self._asleep: list[Group] = []  # groups with topics of which nothing is known yet
        self._up: set[Runner] = set()
        self._busy: set[Runner] = set()  # runners that are being started, stopped or changed
        self._held: dict[Runner, float] = {}
        self._resting: set[Runner] = set()
        self._waiting: dict[str, str] = {}  # streams without a query, and why
        self._ends: dict[TopicPartition, int] = {}
        self._asked_at = 0.0
        self._again_at = math.inf  # when to arrange streams again after a failure
        self._tasks = Tasks("streams", self._not_arranged)

    @property
    def session(self) -> SparkSession:
        """The session for all streams, created when first needed. Raises FatalError if Spark does not start."""
        if self._made is None:
            self._made = streams_session(self._spark.get())
            if self._init is not None:
                self._init(self._made)
        return self._made

    def check(
        self, text: str, source_of: Callable[[str], Source]
    ) -> tuple[Clauses, Source, JoinedReads | None, Planned]:
        """What a stream would read and return. Raises QueryError, and what Spark raises.

        A query that it may share plans no batch for a moment, so that it does not pass the stream's first record.
        """
        clauses, stages = parsed(text)
        source = source_of(clauses.source)
        joined = None if clauses.join is None else _joined(clauses.join, source_of(clauses.join.source))
        found = check(self.session, clauses, stages, source.values, joined)
        kind = kind_of(clauses, source.topic_id, source.values, joined)
        shared = [] if clauses.fill_history else self._shared_by(kind, found)
        for runner in shared:
            with contextlib.suppress(OSError):  # the stream then has its own query
                runner.hold()
                self._held[runner] = now() + _HOLD_SECONDS
        if not shared and not self._has_room():
            raise QueryError(self._no_room())
        return clauses, source, joined, found

    def check_plainly(self, text: str, source_of: Callable[[str], Source]) -> tuple[Clauses, Source, Given] | None:
        """The same for the first stream, while Spark starts; None if only Spark can tell. Raises QueryError.

        Later streams may share a query, about which only Spark's thread knows.
        """
        self._spark.want()
        if self._spark.is_up or self._catalog.streams or not _java_is_here():
            return None
        clauses, stages = parsed(text)
        source = source_of(clauses.source)
        found = given(clauses, stages, source.values)
        return None if found is None else (clauses, source, found)

    def _has_room(self) -> bool:
        return sum(runner.runs for runner in self._runners or ()) < self._most

    def _no_room(self) -> str:
        return (
            f"it can share no query, and there are {self._most} of them, as many as barnabas.streams.max allows: "
            "drop a stream, or raise it"
        )

    def _shared_by(self, kind: str, found: Planned) -> list[Runner]:
        """The queries that a stream may share, those with the most streams first."""
        able = [
            runner
            for runner in self._runners or ()
            if runner.group.kind == kind
            and runner.runs
            and runner.health.state != FAILED
            and fits(found.slots, runner.group.slots)
        ]
        return sorted(able, key=lambda runner: -len(runner.group.members))

    # --- who shares a query -------------------------------------------------------------------------------------------

    def know(self, catalog: Catalog) -> None:
        """Take over a new catalog: streams that are new, gone or changed are assigned to queries."""
        self._catalog = catalog
        self._do(partial(self._arrange, catalog))

    def _arrange(self, catalog: Catalog) -> None:
        """Assign each stream to a query. Runs in the thread."""
        self._known = catalog
        if self._runners is None:
            self._asleep, self._runners = self._read_groups(), []
        wanted = self._wanted()
        self._have_spark(wanted)
        for group in list(self._asleep):
            if self._known.is_whole or all(member.topic in wanted for member in group.members):
                self._asleep.remove(group)
                if (kept := self._without_gone(group)).members:
                    self._runners.append(self._runner(kept, self._of(kept)))
        for runner in list(self._runners):
            self._arrange_one(runner)
        placed = {member.topic for group in self._all_groups() for member in group.members}
        new = [definition for definition in wanted.values() if definition.topic not in placed]
        self._waiting = {topic: why for topic, why in self._waiting.items() if topic in wanted}
        self._place([definition for definition in new if definition.state == keys.RUNNING])
        for runner in list(self._held):
            self._release(runner)
        for runner in list(self._runners):  # without waiting for the next round
            if runner.runs and runner not in self._busy:
                self._start_if_due(runner, now())
        if self._known.is_whole:
            for name in remove_others(self._home.data_dir, [group.id for group in self._all_groups()]):
                self._say("info", "stream.state_removed", folder=name)

    def _have_spark(self, wanted: Collection[str]) -> None:
        """Wait for Spark, if there are streams. Raises FatalError if it does not start; their states then say why."""
        if not wanted:
            return
        try:
            self.session  # noqa: B018  (it is made)
        except FatalError as error:
            self._waiting = dict.fromkeys(wanted, str(error))
            raise

    def _wanted(self) -> dict[str, StreamDefinition]:
        """The streams by topic. A stream whose topic is currently unknown stays as it was."""
        before = {} if self._known.is_whole else {t: d for r in self._runners or () for t, d in r.definitions.items()}
        return before | self._known.streams

    def _read_groups(self) -> list[Group]:
        try:
            return self._groups.read() if self._groups.is_there() else self._restored()
        except Exception as error:
            self._waiting = dict.fromkeys(self._known.streams, reason_of(error))
            self._say("error", "streams.groups", error=reason_of(error))
            raise

    def _restored(self) -> list[Group]:
        """If the list is missing, the queries for which there are copies."""
        if self._home.copies is None:
            return []
        groups = restored(self._home.copies, self._home, self._known.streams)
        self._groups.write(groups)
        return groups

    def _all_groups(self) -> list[Group]:
        return [*self._asleep, *(runner.group for runner in self._runners or ())]

    def _without_gone(self, group: Group) -> Group:
        wanted = self._wanted()
        return group.only([member for member in group.members if member.is_of(wanted.get(member.topic))])

    def _of(self, group: Group) -> dict[str, StreamDefinition]:
        wanted = self._wanted()
        return {member.topic: wanted[member.topic] for member in group.members}

    def _runner(self, group: Group, definitions: dict[str, StreamDefinition]) -> Runner:
        return Runner(self.session, self._home, group, definitions)

    def _arrange_one(self, runner: Runner) -> None:
        """Remove deleted streams from a query, and those that are paused while others run."""
        group = self._without_gone(runner.group)
        definitions = self._of(group)
        resting = [member for member in group.members if definitions[member.topic].state != keys.RUNNING]
        if not group.members:
            self._say("info", "stream.gone", topics=names(runner.group.members))
            self._end(runner)
            return
        if len(group.members) < len(runner.group.members):
            self._say("info", "stream.gone", topics=names(set(runner.group.members) - set(group.members)))
            self._halt(runner)
            self._change({runner: group})
        elif definitions != runner.definitions:
            states = {topic: each.state for topic, each in runner.definitions.items()}
            grown = any(each.partitions != runner.definitions[topic].partitions for topic, each in definitions.items())
            if grown:  # results go to these partitions, too
                self._halt(runner)
            runner.definitions = definitions
            if grown or states != {topic: each.state for topic, each in definitions.items()}:
                runner.health.changed()
        if 0 < len(resting) < len(group.members):
            self._part(runner, resting)

    def _part(self, runner: Runner, leaving: Sequence[Joined], why: str | None = None) -> None:
        """Move some streams to a query of their own, with their state. `why` is the failure that they have there."""
        self._halt(runner)
        try:
            runner.open()  # ends any open transaction, and ensures the right checkpoint
        except (QueryError, ClientError) as error:
            self._say("warning", "stream.not_parted", topics=names(leaving), error=str(error))
            return
        assert self._runners is not None
        staying = [member for member in runner.group.members if member not in leaving]
        apart = runner.group.apart(leaving, runner.folder.checkpoint_id())
        made = self._runner(apart, self._of(apart))
        runner.folder.copy_to(made.folder)
        if why is not None:
            made.health.stopped(why)
        self._change({runner: runner.group.only(staying), made: apart})
        self._say("info", "stream.parted", topics=names(leaving), query=apart.id)

    def _place(self, definitions: Sequence[StreamDefinition]) -> None:
        """Find a query for each stream: a shared one, or one of its own."""
        assert self._runners is not None
        joining: dict[Runner, list[StreamDefinition]] = {}
        for definition in definitions:
            try:
                clauses, stages = parsed(definition.text)
                plan = definition.plan
                found = check(self.session, clauses, stages, plan.values, plan.joined)
                kind = kind_of(clauses, plan.source_id, plan.values, plan.joined)
                able = [r for r in self._shared_by(kind, found) if r.is_before(definition.plan.starts)]
            except Exception as error:  # no stream may end the others
                self._waiting[definition.topic] = reason_of(error)
                self._say("error", "stream.failed", topic=definition.topic, error=reason_of(error))
                continue
            if able:
                joining.setdefault(able[0], []).append(definition)
            elif not self._has_room():
                self._waiting[definition.topic] = self._no_room()
                continue
            else:
                group = new_group(definition, kind, slots_for(found.slots))
                self._change({self._runner(group, {definition.topic: definition}): group})
            self._waiting.pop(definition.topic, None)
            self._say("info", "stream.found", topic=definition.topic, source=plan.source, event_time=clauses.time)
            if (column := meant_time(clauses, plan.schema)) is not None:
                remedy = f"for windows by it make the stream with EVENT_TIME {column}"
                what = f"{plan.source} has a time {column}, too, and the stream goes by the records' own: {remedy}"
                self._say("warning", "stream.event_time", topic=definition.topic, message=what)
        for runner, new in joining.items():
            self._join(runner, new)

    def _join(self, runner: Runner, new: Sequence[StreamDefinition]) -> None:
        """Add streams to a query. It has planned no batch with their records."""
        runner.hold()
        self._halt(runner)
        try:
            batch = runner.open()
        except (QueryError, ClientError) as error:
            for definition in new:
                self._waiting[definition.topic] = str(error)
            return
        able = [each for each in new if runner.is_before(each.plan.starts)]
        self._change({runner: runner.group.join(able, batch)})
        if late := [each for each in new if each not in able]:  # it has continued meanwhile
            self._place(late)

    def _change(self, groups: dict[Runner, Group]) -> None:
        """Give queries other streams, or add new queries. None runs before this is written. Raises OSError."""
        assert self._runners is not None
        runners = [*self._runners, *(runner for runner in groups if runner not in self._runners)]
        self._groups.write([*self._asleep, *(groups.get(runner, runner.group) for runner in runners)])
        for runner, group in groups.items():
            if runner in self._runners:
                runner.change(group, self._of(group))
            else:
                self._runners.append(runner)

    def _end(self, runner: Runner) -> None:
        assert self._runners is not None
        self._halt(runner)
        self._runners.remove(runner)
        self._held.pop(runner, None)
        self._groups.write(self._all_groups())
        self._copier.forget(runner.group.id)

    def _release(self, runner: Runner) -> None:
        self._held.pop(runner, None)
        runner.release()

    # --- the loop -----------------------------------------------------------------------------------------------------

    def look(self, cluster: Cluster) -> None:
        """Start and stop queries as needed, and check the others. Raises ClientError if the broker is gone."""
        at = now()
        if at >= self._again_at:
            self._again_at = math.inf
            self._do(partial(self._arrange, self._catalog))
        if not self._runners:
            return
        due = at - self._asked_at >= _ASK_SECONDS
        if due:
            self._asked_at = at
            self._ask_ends(cluster)
            for runner in list(self._runners):
                if runner not in self._up:
                    runner.know_place()
                    runner.count_lag(self._ends, at)
        self._resting = self._rests(at)
        self._copier.look(at, [runner for runner in self._runners if runner not in self._busy])
        for runner, until in list(self._held.items()):
            if at >= until:
                self._release(runner)
        for runner in list(self._runners):
            if runner not in self._busy and not self._is_gone(runner):
                self._look_at(runner, at, due)

    def _look_at(self, runner: Runner, at: float, due: bool) -> None:
        if not runner.runs:
            if runner in self._up:
                self._stop(runner)
        elif runner not in self._up:
            self._start_if_due(runner, at)
        elif due:
            failure = self._failure(runner, at)
            if runner in self._busy or runner not in self._up:
                return  # the thread has stopped it meanwhile
            if isinstance(failure, QueryError):
                self._fail(runner, str(failure))
            elif failure is not None:
                self._failed(runner, reason_of(failure))
            elif runner.is_to_count():
                self._busy.add(runner)
                self._do(lambda: self._count(runner))
            elif runner in self._resting and runner not in self._held:
                self._say("info", "stream.rests", topics=names(runner.group.members))
                self._stop(runner)

    def _rests(self, at: float) -> set[Runner]:
        """The queries that have nothing to do."""
        return resting([runner for runner in self._runners or () if runner.runs], at)

    def _start_if_due(self, runner: Runner, at: float) -> None:
        if runner in self._up or not runner.health.may_run(at) or self._is_full():
            return
        if runner not in self._rests(at):
            self._start(runner)

    def _is_full(self) -> bool:
        """Whether the maximum of queries is running."""
        return len(self._up) + len(self._busy - self._up) >= self._most

    def _failure(self, runner: Runner, at: float) -> str | Exception | None:
        """Why a query has stopped, if it has."""
        try:
            return runner.look(at, self._ends)
        except Exception as error:  # no stream may end the driver
            return error

    def _ask_ends(self, cluster: Cluster) -> None:
        """Ask for the sources' ends."""
        sources = self._catalog.sources
        wanted = {source for definition in self._catalog.streams.values() for source in definition.plan.sources}
        parts = [(name, p) for name in wanted if name in sources for p in range(sources[name].partitions)]
        try:
            self._ends = list_offsets(cluster, parts, LATEST)
        except ClientError:
            cluster.metadata([])  # raises if the broker is gone, rather than a topic

    def _is_gone(self, runner: Runner) -> bool:
        """Whether a source is gone or has become another topic; then the streams have failed."""
        for name, topic_id in runner.source.sources.items():
            source = self._catalog.sources.get(name)
            if source is None or source.topic_id != topic_id:
                what = "was deleted" if source is None else "was deleted and made again"
                if runner.health.state != FAILED:
                    self._fail(runner, f"the source {name} {what}: drop this stream, and make it again")
                return True
        return False

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _start(self, runner: Runner) -> None:
        self._busy.add(runner)
        self._do(lambda: self._start_now(runner))

    def _start_now(self, runner: Runner) -> None:
        if runner in self._up or runner not in (self._runners or ()):
            self._busy.discard(runner)
            return
        try:
            runner.start(now(), self._trigger_ms)
            self._up.add(runner)
        except MemberError as error:
            (member,) = (each for each in runner.group.members if each.number == error.number)
            self._fail_one(runner, member, str(error))
        except QueryError as error:
            self._fail(runner, str(error))
        except Exception as error:
            self._failed(runner, reason_of(error))
        finally:
            self._busy.discard(runner)

    def _count(self, runner: Runner) -> None:
        """Stop streams whose state has outgrown its limit."""
        try:
            for topic, why in runner.outgrown().items():
                (member,) = (each for each in runner.group.members if each.topic == topic)
                self._fail_one(runner, member, why)
        finally:
            self._busy.discard(runner)

    def _fail_one(self, runner: Runner, member: Joined, why: str) -> None:
        """A stream cannot continue, while those that share its query can."""
        if len(runner.group.members) == 1:
            self._fail(runner, why)
            return
        self._say("error", "stream.failed", topic=member.topic, error=why)
        self._part(runner, [member], why)

    def _stop(self, runner: Runner) -> None:
        self._busy.add(runner)
        self._do(lambda: self._halt(runner))

    def _halt(self, runner: Runner) -> None:
        """End a query, permanently or for a while."""
        self._busy.add(runner)  # otherwise it would count as one that has ended by itself
        try:
            runner.stop()
        except Exception as error:
            self._say("warning", "stream.not_stopped", topics=names(runner.group.members), error=reason_of(error))
        finally:
            self._up.discard(runner)
            self._busy.discard(runner)

    def _failed(self, runner: Runner, error: str) -> None:
        """Retry the query after increasing pauses. If that does not help, its streams separate."""
        if error != _DEAD_WORKER or not runner.health.disturbed(now(), error):
            runner.health.failed(now(), error)
        self._say("warning", "stream.retrying", topics=names(runner.group.members), error=error)
        self._stop(runner)
        members = runner.group.members
        if runner.health.failures >= _PART_AFTER and len(members) > 1:
            self._do(lambda: self._part(runner, members[: len(members) // 2]))

    def _fail(self, runner: Runner, error: str) -> None:
        """The query cannot continue until a user changes something."""
        runner.health.stopped(error)
        self._say("error", "stream.failed", topics=names(runner.group.members), error=error)
        self._stop(runner)

    def _do(self, task: Callable[[], object]) -> None:
        self._tasks.put(task)

    def _not_arranged(self, error: Exception) -> None:
        self._say("error", "streams.arranging", error=reason_of(error))
        self._again_at = now() + _AGAIN_SECONDS

    def stop(self) -> None:
        """End all queries, because the driver ends or restarts itself."""
        for runner in self._runners or ():
            runner.abandon()
        self._runners = []

    # --- telling ------------------------------------------------------------------------------------------------------

    def told(self) -> list[StreamStatus]:
        """The state of all streams."""
        at = now()
        found = {}
        for runner in self._runners or ():
            for topic, definition in runner.definitions.items():
                state = self._state(runner, definition)
                why = self._no_room() if state == WAITING else definition.denied or None
                told = runner.told(definition, at, state, why)
                copied, _, _ = self._copier.copied.get(runner.group.id, (None, None, None))
                found[topic] = msgspec.structs.replace(told, copied=copied)
        for topic, definition in self._catalog.streams.items():
            if topic not in found:
                why = self._waiting.get(topic) or definition.denied or None
                state = definition.state.upper() if definition.state != keys.RUNNING else WAITING if why else STARTING
                source = ", ".join(definition.plan.sources)
                found[topic] = StreamStatus(
                    topic=topic, name=definition.name, source=source, state=state, last_error=why
                )
        return [found[topic] for topic in self._catalog.streams if topic in found]

    def _state(self, runner: Runner, definition: StreamDefinition) -> str:
        if definition.state != keys.RUNNING:
            return definition.state.upper()
        if runner not in self._up and runner.health.error is None:
            if runner in self._resting and runner not in self._busy:
                return RUNNING
            return WAITING if runner not in self._busy and self._is_full() else STARTING
        return LAGGING if runner.is_behind and runner.health.error is None else runner.health.state


def _joined(join: Join, source: Source) -> JoinedReads:
    """What a stream reads from the topic that its source is joined with."""
    values = msgspec.structs.asdict(source.values)
    return JoinedReads(source=source.name, source_id=source.topic_id, is_table=join.is_table, **values)


def _java_is_here() -> bool:
    """Whether Spark will probably start."""
    try:
        check_java()
    except JavaError:
        return False
    return True
