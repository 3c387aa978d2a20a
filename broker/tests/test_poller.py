"""Sockets that are served in turns."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial

import pytest
import trio
import trio.testing

from barnabas.broker.net import transport
from barnabas.broker.net.connection import Connection
from barnabas.broker.net.poller import Poller, wake_trio
from barnabas.broker.net.task_watch import TaskWatch
from barnabas.broker.tests.conftest import Start
from barnabas.wire import portable
from barnabas.wire.codegen import message_codec
from barnabas.wire.header import write_request_header
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.types import SizedChunk


@contextmanager
def pairs(count: int) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Connected sockets: (ours, the client's)."""
    with ExitStack() as stack:
        made = [socket.socketpair() for _ in range(count)]
        for ours, theirs in made:
            stack.enter_context(ours)
            stack.enter_context(theirs)
            ours.setblocking(False)
        yield made


class Around:
    """Notes the begin and end of each turn."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def __enter__(self) -> None:
        self.seen.append("begin")

    def __exit__(self, *_: object) -> None:
        self.seen.append("end")


@pytest.fixture(autouse=True, params=["trio's epoll", "a task", "a task for each socket"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All ways in which trio can be woken."""
    if request.param == "a task for each socket":
        monkeypatch.setattr(portable, "forced", True)
    if request.param == "a task":
        monkeypatch.setattr("barnabas.broker.net.poller.wake_trio", lambda epoll: None)
    return str(request.param)


async def serve(count: int) -> list[str]:
    """The calls, in order, when `count` sockets are readable at the same time."""
    seen: list[str] = []
    served = trio.Event()
    poller = Poller(Around(seen))
    with pairs(count) as made:

        def call(sock: socket.socket) -> None:
            sock.recv(10)
            seen.append("served")
            if seen.count("served") == len(made):
                served.set()

        for ours, theirs in made:
            poller.add(ours, lambda ours=ours: call(ours))  # type: ignore[misc]
            theirs.send(b"x")
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poller.run)
                await served.wait()
                nursery.cancel_scope.cancel()
        poller.close()
    return seen


async def test_what_is_readable_at_one_time_is_served_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.net.poller.HOLD_SECONDS", 60.0)
    assert await serve(3) == ["begin", "served", "served", "served", "end"]


async def test_others_have_their_turn_when_serving_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.net.poller.HOLD_SECONDS", 0.0)
    assert await serve(2) == ["begin", "served", "end", "begin", "served", "end"]


async def test_a_call_is_made_again_whatever_the_socket_says() -> None:
    seen: list[str] = []
    called = trio.Event()
    poller = Poller(Around(seen))

    def call() -> None:
        seen.append("called")
        called.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            poller.again(call)
            await called.wait()
            nursery.cancel_scope.cancel()
    poller.close()
    assert seen == ["begin", "called", "end"]


async def test_a_call_that_raises_ends_the_poller() -> None:
    poller = Poller(Around([]))

    def call() -> None:
        raise ZeroDivisionError

    with pairs(1) as [(ours, theirs)]:
        poller.add(ours, call)
        theirs.send(b"x")
        with trio.fail_after(60), pytest.raises(ExceptionGroup) as caught:
            await poller.run()
        poller.close()
    assert caught.group_contains(ZeroDivisionError)


async def test_tasks_run_while_a_socket_is_always_readable(way: str) -> None:
    seen: list[str] = []
    poller = Poller(Around(seen))
    with pairs(1) as [(ours, theirs)]:
        poller.add(ours, lambda: seen.append("served"))  # reads nothing
        theirs.send(b"x")
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poller.run)
                for _ in range(20 if way == "a task for each socket" else 10):  # each call takes a pass
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        poller.close()
    assert 5 <= seen.count("served") <= 12


class RemovesFirst(trio.abc.Instrument):
    """Removes a socket after its task was scheduled, and before the task runs."""

    def __init__(self, watch: TaskWatch, fd: int) -> None:
        self._watch, self._fd, self.has_removed = watch, fd, False

    def after_io_wait(self, timeout: float) -> None:
        events = select.poll()
        events.register(self._fd, select.POLLIN)
        if not self.has_removed and events.poll(0):
            self.has_removed = True
            self._watch.remove(self._fd)


async def test_a_socket_that_is_removed_before_its_task_runs_is_not_found() -> None:
    watch = TaskWatch(lambda: None)
    with pairs(1) as [(ours, theirs)]:
        watch.add(ours.fileno())
        instrument = RemovesFirst(watch, ours.fileno())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            await trio.testing.wait_all_tasks_blocked()
            trio.lowlevel.add_instrument(instrument)
            theirs.send(b"x")
            with trio.fail_after(60):
                while not instrument.has_removed:
                    await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
            trio.lowlevel.remove_instrument(instrument)
            assert watch.find() == []
            nursery.cancel_scope.cancel()


async def test_a_socket_may_be_closed_when_it_has_just_been_served() -> None:
    """Its task must not watch the descriptor again, because it may belong to another socket by then."""
    found = trio.Event()
    watch = TaskWatch(found.set)
    with pairs(1) as [(ours, theirs)]:
        fd = ours.fileno()
        watch.add(fd)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            theirs.send(b"x")
            await found.wait()
            assert watch.find() == [fd]
            watch.again(fd)  # its task runs next
            watch.remove(fd)
            ours.close()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


@pytest.mark.door
async def test_this_trio_is_woken_without_a_task() -> None:
    """Fails if trio's internals have changed. The broker still works then, but each request costs more."""
    epoll = select.epoll()
    inside = wake_trio(epoll)
    assert inside is not None
    event = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(event.wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not inside.tasks
        event.set()
        assert inside.tasks
    epoll.close()


class OtherInsides:
    """A version of trio with other internal parts."""

    def __init__(self, **parts: object) -> None:
        self.io_manager, self.runq = self, ()
        self._epoll: object = select.epoll()
        self.__dict__.update(parts)

    def process_events(self, events: object) -> None:
        """Accept the events, as trio does."""


def refuses(*_: object) -> None:
    raise RuntimeError("that is nobody's descriptor")


@pytest.mark.door
@pytest.mark.parametrize(
    "parts",
    [{"io_manager": None}, {"process_events": refuses}, {"_epoll": None}, {"_epoll": object()}, {"runq": None}],
    ids=["no manager", "a manager that refuses", "no epoll", "another epoll", "no queue"],
)
async def test_a_trio_of_other_insides_is_woken_by_a_task_and_the_log_says_so(
    parts: dict[str, object], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    context = OtherInsides(runner=OtherInsides(**parts))
    monkeypatch.setattr("trio._core._run.GLOBAL_RUN_CONTEXT", context, raising=False)
    epoll = select.epoll()
    inside = wake_trio(epoll)
    monkeypatch.undo()
    epoll.close()
    assert inside is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"trio {trio.__version__}" in caplog.records[0].getMessage()


class Passes(trio.abc.Instrument):
    """Counts the passes of the event loop."""

    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


def ask(sock: socket.socket, times: int) -> None:
    """A client that asks again as soon as it has its answer."""
    for _ in range(times):
        sock.send(b"x")
        assert sock.recv(1) == b"y"


async def test_who_asks_again_at_once_is_waited_for_without_a_sleep(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """It takes no pass of the event loop for each request, except for the first ones."""
    monkeypatch.setattr("barnabas.broker.net.poller.HOLD_SECONDS", 60.0)
    passes, poller = Passes(), Poller(nullcontext(), idle_poll=60.0)
    with pairs(1) as [(ours, theirs)]:

        def call() -> None:
            ours.recv(1)
            ours.send(b"y")

        poller.add(ours, call)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poller.run)
                await trio.testing.wait_all_tasks_blocked()
                trio.lowlevel.add_instrument(passes)
                await trio.to_thread.run_sync(ask, theirs, 200)  # its end wakes trio, and the polling ends
                nursery.cancel_scope.cancel()
        poller.close()
    assert passes.count < 30 if way == "trio's epoll" else passes.count >= 200


async def test_who_looks_does_not_keep_tasks_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.net.poller.HOLD_SECONDS", 60.0)
    poller = Poller(nullcontext(), idle_poll=60.0)
    asked = trio.Event()
    with pairs(1) as [(ours, theirs)]:
        seen = []

        def call() -> None:
            seen.append(ours.recv(1))
            ours.send(b"y")
            if len(seen) == 50:  # the last one
                asked.set()

        poller.add(ours, call)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poller.run)
                nursery.start_soon(partial(trio.to_thread.run_sync, ask, theirs, 50, abandon_on_cancel=True))
                await asked.wait()
                nursery.cancel_scope.cancel()
        poller.close()
    assert len(seen) == 50


async def test_who_looks_in_vain_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not poll again until requests come in quick succession again."""
    poller = Poller(nullcontext(), idle_poll=1e-3)
    poller._short_waits = 2
    assert not poller._look()
    assert poller._short_waits == 0
    monkeypatch.setattr(poller, "_anything", None)
    assert not poller._look()
    poller.close()


async def test_answers_of_one_pass_leave_at_its_end(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """To wake a client for each answer costs more than its request, so the answers are sent after all requests."""
    monkeypatch.setattr("barnabas.broker.net.poller.HOLD_SECONDS", 60.0)
    monkeypatch.setattr("barnabas.broker.net.connection.SLICE_SECONDS", 60.0)
    seen: list[str] = []
    dispatch, send_some = Connection._dispatch, transport.send_some

    def noted_dispatch(self: Connection, frame: bytes | memoryview) -> bool:
        seen.append("handled")
        return dispatch(self, frame)

    def noted_send(sock: socket.socket, chunks: list[SizedChunk]) -> list[SizedChunk]:
        seen.extend(["sent"] if chunks else [])
        return send_some(sock, chunks)

    monkeypatch.setattr(Connection, "_dispatch", noted_dispatch)
    monkeypatch.setattr("barnabas.broker.net.transport.send_some", noted_send)
    request = write_request_header(18, 3, 1, "test", True) + message_codec(ApiVersionsRequest, 3).build(
        ApiVersionsRequest("test", "1")
    )
    async with start() as running:
        with ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(("127.0.0.1", running.port), 20)) for _ in range(3)]
            with trio.fail_after(60):
                while len(running.node.connections) < len(clients):
                    await trio.lowlevel.checkpoint()
                for _ in range(2):  # a new connection sends at once, because it checks for more to read
                    seen.clear()
                    for client in clients:  # without a pass of the event loop in between
                        client.send(len(request).to_bytes(4, "big") + request)
                    while seen.count("sent") < len(clients):
                        await trio.lowlevel.checkpoint()
    assert seen == ["handled"] * 3 + ["sent"] * 3
