"""docs/one-request.md names the functions that a Produce request runs, in their order, and every file on its way."""

import re
from pathlib import Path

import pytest

from bench.walk import ROOT, walks

PAGE = ROOT / "docs" / "one-request.md"
#: A link to a file, or a function in backquotes. A function belongs to the last file linked before it.
_MENTION = re.compile(r"\[[\w/.]+\]\(\.\./([\w/.]+\.py)\)|`([A-Za-z_.]+)`")


#: Functions that depend on the disk and the system: the page names all ways to sync.
BY_THE_SYSTEM = {
    ("storage/flusher.py", "Flusher._run_job"),
    ("storage/io.py", "Io.fdatasync"),
    ("storage/kernel_sync.py", "KernelSync.submit"),
    ("wire/portable.py", "has"),
}
#: Functions that the page explains at another place than where they run.
OUT_OF_ORDER = {("broker/clock.py", "Clock.wall_ms"), ("broker/net/turn.py", "Turn.__enter__")}


def mentioned() -> list[tuple[str, str]]:
    """The pairs (file, function) of the page, in its order."""
    found, file = [], ""
    for path, function in _MENTION.findall(PAGE.read_text()):
        file = path or file
        if function and file:
            found.append((file, function))
    return found


def is_there(file: str, function: str) -> bool:
    return re.search(rf"def {function.rpartition('.')[2]}\(", (ROOT / file).read_text()) is not None


async def test_the_page_is_the_walk_of_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dir": str(tmp_path),
        "group.initial.rebalance.delay.ms": "0",
    }
    calls = (await walks(settings))["produce"].calls
    said = mentioned()
    assert len(said) > 30
    assert [each for each in said if each not in calls and each not in BY_THE_SYSTEM] == []
    assert [each for each in BY_THE_SYSTEM if not is_there(*each)] == []
    assert {file for file, _ in calls} - {file for file, _ in said} == set()
    at = 0
    for each in (one for one in said if one not in OUT_OF_ORDER | BY_THE_SYSTEM):
        assert each in calls[at:], f"{each} runs earlier than the page says"
        at = calls.index(each, at)
