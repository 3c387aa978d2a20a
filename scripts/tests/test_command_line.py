"""The command line as users type it: wrong words, options at any position, completion, and the start of reading."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.errors import ClientError
from barnabas.scripts.cli import main, parser
from barnabas.scripts.command_line import SHELLS, completions
from barnabas.scripts.form import json_line
from barnabas.scripts.listing import duration, size
from barnabas.scripts.produce import BadLineError, record_of
from barnabas.scripts.starts import Start, parse_start
from barnabas.wire.batch import Record

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["topcs", "list"], "there is no command topcs: did you mean topics?"),
        (["topics", "lst"], "there is no verb lst: did you mean list?"),
        (["xyzzy"], "there is no command xyzzy: there are serve, topics"),
        (["topics", "create", "a", "--partitons", "3"], "what is --partitons 3? Did you mean --partitions?"),
        (["produce", "a", "--compression", "zst"], "there is no value of --compression zst: did you mean zstd?"),
        (["topics", "list", "extra"], "what is extra? The command does not take it."),
        (["topics"], "the following arguments are required: VERB"),
        (["\x1b[2Jtopics"], "there is no command \\x1b[2Jtopics: did you mean topics?"),
    ],
)
def test_a_wrong_word_is_told_with_the_right_one(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.splitlines()[0].startswith(f"barnabas: {says}")
    assert "--help' lists the commands and options." in told


@pytest.mark.parametrize("option", ["-b", "--bootstrap-server", "--bootstrap", "--server"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_whom_to_ask_may_stand_anywhere(option: str, place: int) -> None:
    words = ["topics", "list"]
    words[place:place] = [option, "a:1"]
    assert parser().parse_args(words).server == "a:1"
    assert parser().parse_args([*words, "-b", "b:2"]).server == "b:2"  # the last one counts


@pytest.mark.parametrize("option", ["-b", "--bootstrap-server", "--bootstrap", "--server"])
@pytest.mark.parametrize("words", [["streams"], ["connect", "status"], ["connect", "influx"], ["offsets", "status"]])
def test_every_command_that_asks_a_broker_takes_the_same_spellings(words: list[str], option: str) -> None:
    assert parser().parse_args([*words, option, "a:1"]).server == "a:1"


def test_help_names_the_variable_of_the_login(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["topics", "list", "--help"])
    assert "BARNABAS_COMMAND_CONFIG" in capsys.readouterr().out


def test_the_environment_says_whom_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parser().parse_args(["topics", "list"]).server == "localhost:9092"
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", "a:1,b:2")
    assert parser().parse_args(["topics", "list"]).server == "a:1,b:2"
    assert parser().parse_args(["connect", "status"]).server == "a:1,b:2"
    assert parser().parse_args(["offsets", "status"]).server == "a:1,b:2"
    assert parser().parse_args(["topics", "list", "-b", "c:3"]).server == "c:3"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["top"], ["topics"]),
        (["topics", "l"], ["list", "ls"]),
        (["topics", "list", "--in"], ["--internal"]),
        (["-b", "127.0.0.1:1", "groups", "de"], ["delete", "describe"]),
        (["produce", "t", "--compression", "l"], ["lz4"]),
        (["produce", "t", "--compression=lz4", "--ke"], ["--key-separator"]),
        (["completion", ""], ["bash", "fish", "zsh"]),
        (["topics", "describe", "--server", "127.0.0.1:1", ""], []),  # no user can be asked
        (["nothing", "x"], []),
    ],
)
def test_words_are_completed(words: list[str], found: list[str]) -> None:
    assert completions(parser(), words) == found


def test_bash_completes(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    assert set(SHELLS) == {"bash", "zsh", "fish"}
    (tmp_path / "barnabas").write_text('#!/bin/sh\n[ "$1" = __complete ] && printf "%s\\n" "two words" "of $3"\n')
    (tmp_path / "barnabas").chmod(0o755)
    script = SHELLS["bash"] + 'COMP_WORDS=(barnabas topics li); COMP_CWORD=2; _barnabas; printf "%s|" "${COMPREPLY[@]}"'
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run([bash, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "two words|of li|"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start("beginning")),
        ("Earliest", Start("beginning")),
        ("end", Start("end")),
        ("latest", Start("end")),
        ("0", Start("offset", 0)),
        ("17", Start("offset", 17)),
        ("-5", Start("last", 5)),
        ("-0", Start("last", 0)),
        ("@1700000000000", Start("time", 1_700_000_000_000)),
        ("@2026-01-31T12:00:00Z", Start("time", int(NOW.timestamp() * 1000))),
        ("@-2h", Start("time", int(NOW.timestamp() * 1000) - 7_200_000)),
        ("@-90s", Start("time", int(NOW.timestamp() * 1000) - 90_000)),
    ],
)
def test_where_reading_begins(text: str, start: Start) -> None:
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize("text", ["", "x", "@", "@yesterday", "1.5", "@2h", "--5"])
def test_what_is_no_start_is_told_with_what_is(text: str) -> None:
    with pytest.raises(ClientError, match="expected beginning, end"):
        parse_start(text, NOW)


BLOB = st.none() | st.binary(max_size=50) | st.text(max_size=20).map(lambda text: text.encode())


@given(BLOB, BLOB, st.integers(0, 2**40), st.lists(st.tuples(st.text(max_size=5), BLOB), max_size=3))
def test_a_line_of_consume_is_one_of_produce(
    key: bytes | None, value: bytes | None, timestamp: int, headers: list[tuple[str, bytes | None]]
) -> None:
    record = Record(key, value, timestamp, tuple(headers), 7)
    line = json_line("t", 3, record)
    assert line.isascii()
    assert line.count(b"\n") == 1
    partition, again = record_of(line, 1)
    assert partition == 3
    assert (again.key, again.value, again.timestamp, again.headers) == (key, value, timestamp, tuple(headers))


def test_other_values_are_sent_as_json() -> None:
    _, record = record_of(b'{"value": {"temp": 21.5, "ok": true}, "key": 5}', 1)
    assert (record.key, json.loads(record.value or b"")) == (b"5", {"temp": 21.5, "ok": True})


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"headers": {"a": 1}}', b'{"value": {"base64": "%"}}', b'{"partition": "x"}', b"\xff"]
)
def test_a_line_that_is_no_record_is_told_by_its_number(line: bytes) -> None:
    with pytest.raises(BadLineError, match="Line 9 is not a record in JSON"):
        record_of(line, 9)


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (150 << 20, "150 MiB"), (5 << 50, "5.0 PiB")]
)
def test_bytes_as_people_read_them(count: int, shown: str) -> None:
    assert size(count) == shown


@pytest.mark.parametrize(
    ("ms", "shown"), [(604_800_000, "7 d"), (3_600_000, "1 h"), (90_000, "90 s"), (1500, "1500 ms"), (0, "0 ms")]
)
def test_times_as_people_read_them(ms: int, shown: str) -> None:
    assert duration(ms) == shown
