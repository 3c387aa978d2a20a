"""The session of streams is made once, whichever threads ask for it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.windows import session


def test_threads_that_ask_at_the_same_time_get_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    is_making, asked_again = threading.Event(), threading.Event()

    class Context:
        @property
        def applicationId(self) -> str:
            if is_making.is_set():
                asked_again.set()
            return "the application of this test"

    def new_session() -> Any:
        conf, sources = SimpleNamespace(set=lambda *_: None), SimpleNamespace(register=lambda _: None)
        made.append(SimpleNamespace(conf=conf, dataSource=sources))
        return made[-1]

    def check(_: object) -> None:
        is_making.set()
        assert asked_again.wait(60)

    monkeypatch.setattr(session, "check_workers", check)
    monkeypatch.setattr(session, "use_local_files", lambda _: None)
    spark: Any = SimpleNamespace(sparkContext=Context(), newSession=new_session)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(session.streams_session(spark))) for _ in range(2)]
    threads[0].start()
    assert is_making.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join(60)
    assert (len(made), found) == (1, made * 2)
