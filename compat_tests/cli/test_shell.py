"""The shell of `barnabas sql` on a terminal of its own, and statements in scripts, against a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from compat_tests.broker_process import Barnabas
from compat_tests.cli.terminal import Terminal, state_of
from compat_tests.cli.test_cli import COMMAND
from compat_tests.tools import ROOT
from compat_tests.waiting import until

pytest.importorskip("pyarrow", reason="pyarrow is not installed: make setup-all")

EVIL = b"\x1b[2J\x1b]0;owned\x07\xe2\x80\xae\x9b\xff"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    with Barnabas(tmp_path_factory.mktemp("shell")) as made:
        sql(made, "CREATE TOPIC sensors (device STRING, temp DOUBLE)")
        sql(made, "CREATE TOPIC evil")
        producer = Producer({"bootstrap.servers": made.address})
        for n in range(100):
            producer.produce("sensors", json.dumps({"device": f"d{n % 4}", "temp": n + 0.5}).encode(), b"k%d" % n)
        producer.produce("evil", EVIL, EVIL, headers=[("h", EVIL)])
        producer.produce("evil", b"x" * 900_000)
        assert producer.flush(30) == 0
        yield made


def sql(broker: Barnabas, *words: str, stdin: str | None = None, status: int = 0) -> tuple[str, str]:
    """The output of a command: standard output and standard error."""
    ran = subprocess.run(
        [*COMMAND, "sql", "--server", broker.address, *words], input=stdin, capture_output=True, text=True, cwd=ROOT,
        check=False,
    )  # fmt: skip
    assert ran.returncode == status, ran.stderr
    return ran.stdout, ran.stderr


def shell(broker: Barnabas, folder: Path, *words: str) -> Terminal:
    pytest.importorskip("prompt_toolkit", reason="prompt_toolkit is not installed: make setup-all")
    return Terminal([*COMMAND, "sql", "--server", broker.address, *words], state_of(folder))


# --- one statement ----------------------------------------------------------------------------------------------------


def test_a_small_query_needs_no_spark(broker: Barnabas) -> None:
    out, err = sql(broker, "SELECT device, count(*) AS n FROM sensors GROUP BY device ORDER BY device LIMIT 2")
    assert [line.split() for line in out.splitlines()] == [["device", "n"], ["d0", "25"], ["d1", "25"]]
    assert err.startswith("-- 2 rows, ")
    assert err.rstrip().endswith("without Spark")
    assert "without Spark" in sql(broker, "EXPLAIN SELECT temp FROM sensors WHERE temp > 3")[0]
    assert "with Spark: the function rank" in sql(broker, "EXPLAIN SELECT rank() OVER (ORDER BY temp) FROM sensors")[0]


def test_formats(broker: Barnabas, tmp_path: Path) -> None:
    query = "SELECT _key, temp FROM sensors WHERE temp < 2"
    out, _ = sql(broker, "--format", "json", query)
    assert [json.loads(line) for line in out.splitlines()] == [
        {"_key": "k0", "temp": 0.5},
        {"_key": "k1", "temp": 1.5},
    ]
    assert sql(broker, "--format", "csv", query)[0] == "_key,temp\nk0,0.5\nk1,1.5\n"
    assert "row 2" in sql(broker, "--upright", query)[0]
    assert "┤" in sql(broker, "--plot", "SELECT _offset, temp FROM sensors")[0]
    path = tmp_path / "rows.parquet"
    sql(broker, "--format", "parquet", "--output", str(path), "--limit", "0", "SELECT * FROM sensors")
    import pyarrow.parquet as parquet

    assert parquet.read_table(path).num_rows == 100
    assert "--output FILE" in sql(broker, "--format", "parquet", query, status=1)[1]
    assert "cannot be written" in sql(broker, "--format", "csv", "--output", "/no/where", query, status=1)[1]


def test_nothing_of_a_record_steers_a_terminal(broker: Barnabas) -> None:
    for form in ("table", "csv", "json"):
        command = [*COMMAND, "sql", "--server", broker.address, "--format", form, "SELECT * FROM evil"]
        with Terminal(command, {"NO_COLOR": "1"}) as terminal:
            terminal.until("-- 2 rows")
            assert b"\x1b[2J" not in terminal.raw
            assert b"owned\x07" not in terminal.raw
            assert b"\xe2\x80\xae" not in terminal.raw
            assert b"\x9b" not in terminal.raw.replace("\u2026".encode(), b"")


def test_mistakes_are_told_in_the_words_of_create(broker: Barnabas) -> None:
    for text, told in [
        ("SELECT devise FROM sensors", "there is no column `devise`"),
        ("SELECT devise FROM sensors", "did you mean device?"),
        ("SELECT lenght(device) FROM sensors", "there is no function lenght; did you mean length?"),
        ("SELECT * FROM sensor", "there is no topic sensor: create it first; did you mean sensors?"),
        ("SELECT * FROM sensors JOIN sensor USING (device)", "there is no topic sensor"),
        ("SELECT device FROM sensors SELECT 1", "a ; is missing before SELECT"),
        ("SELECT 'x", "the quote ' is not closed"),
    ]:
        _, err = sql(broker, text, status=1)
        assert told in err
        assert "Spark" not in err


# --- scripts ----------------------------------------------------------------------------------------------------------


def test_a_script_says_which_statement_failed(broker: Barnabas) -> None:
    text = "SELECT count(*) FROM sensors;\n\nSELECT x FROM sensors;\nSELECT 1;\n"
    out, err = sql(broker, stdin=text, status=1)
    assert out.split() == ["count(1)", "100"]
    assert "statement 2 (line 3): SELECT x FROM sensors: there is no column `x`" in err
    out, err = sql(broker, "--on-error", "continue", stdin=text, status=1)
    assert out.split() == ["count(1)", "100", "1", "1"]
    assert "1 of 3 statements failed" in err


def test_a_script_with_a_statement_that_is_none_runs_nothing(broker: Barnabas) -> None:
    out, err = sql(broker, stdin="CREATE TOPIC never;\nSELECT (;", status=1)
    assert out == ""
    assert "statement 2 (line 2)" in err
    assert "never" not in sql(broker, "SHOW TABLES")[0]


def test_show_create_makes_the_same_topic_again(broker: Barnabas) -> None:
    sql(broker, "CREATE TOPIC first (a INT, `b c` STRING) PARTITIONS 3 WITH ('retention.ms' = '1000')")
    made, _ = sql(broker, "SHOW CREATE TABLE first")
    sql(broker, made.replace("`first`", "`second`"))
    assert sql(broker, "SHOW CREATE TOPIC second")[0] == made.replace("`first`", "`second`")


# --- for other processes ----------------------------------------------------------------------------------------------


def asked(request: object) -> list[dict[str, object]]:
    text = request if isinstance(request, str) else json.dumps(request)
    ran = subprocess.run(
        [sys.executable, "-m", "barnabas.streams.select"], input=text, capture_output=True, text=True, cwd=ROOT,
        check=False,
    )  # fmt: skip
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_another_process_answers_a_request(broker: Barnabas) -> None:
    request = {"server": broker.address, "query": "SELECT _key, temp FROM sensors WHERE temp > 98", "limit": 10}
    columns, rows, done = asked(request)
    assert columns == {"columns": [{"name": "_key", "type": "string"}, {"name": "temp", "type": "double"}]}
    assert rows == {"rows": [["k98", 98.5], ["k99", 99.5]]}
    assert done == {"done": True, "rows": 2, "read": 100}
    assert "needs_spark" in asked(request | {"query": "SELECT hash(_key) FROM sensors"})[0]
    assert "no column" in str(asked(request | {"query": "SELECT x FROM sensors"})[0]["error"])
    assert "not a JSON object" in str(asked("{")[0]["error"])
    assert "unknown field" in str(asked(request | {"more": 1})[0]["error"])
    assert asked(request | {"query": "SELECT x FROM evil", "server": "127.0.0.1:1"})[0].keys() == {"error"}


# --- the shell --------------------------------------------------------------------------------------------------------


def test_statements_commands_and_history(broker: Barnabas, tmp_path: Path) -> None:
    with shell(broker, tmp_path) as terminal:
        terminal.ask("SELECT device, max(temp) AS top\rFROM sensors\rGROUP BY device ORDER BY 1;\r")
        assert "98.5" in terminal.until("-- 4 rows")
        terminal.ask("SELECT lenght(device) FROM sensors;\r")
        terminal.until("did you mean length?")
        terminal.ask("SELECT device FROM sensors WHERE (;\r")
        assert "^" in terminal.until("the parenthesis is not closed")
        terminal.ask("\\d\r")
        terminal.until("READS")
        terminal.until("sensors")
        terminal.ask("\\d sensors\r")
        terminal.until("0: 0 to 100")
        terminal.ask("\\x\r")
        terminal.until("rows are upright")
        terminal.ask("SELECT temp FROM sensors LIMIT 1;\r")
        terminal.until("-[ row 1 ]-")
        terminal.ask("\\format json\r")
        terminal.until("rows are json")
        terminal.ask("\\x\r")
        terminal.until("rows are a table")
        terminal.ask("SELECT temp FROM sensors LIMIT 1;\r")
        terminal.until('{"temp":0.5}')
        terminal.ask("\\g\r")
        terminal.until('{"temp":0.5}')
        terminal.ask("\\nonsense\r")
        terminal.until("there is no command")
        terminal.ask("\x04")
        assert terminal.ended() == 0
    kept = (tmp_path / "barnabas" / "sql_history").read_text()
    assert "+GROUP BY device ORDER BY 1;" in kept
    with shell(broker, tmp_path) as terminal:
        terminal.ask("\x1b[A\r")  # the key "up"
        terminal.until("there is no command")
        terminal.ask("quit\r")
        assert terminal.ended() == 0


def test_a_select_is_drawn_timed_or_written_to_a_file(broker: Barnabas, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    with shell(broker, tmp_path) as terminal:
        terminal.ask("\\plot\r")
        terminal.until("SELECTs are drawn")
        terminal.ask("SELECT _offset, temp FROM sensors;\r")
        assert "┤" in terminal.until("-- 100 rows")
        terminal.ask("\\plot\r")
        terminal.until("SELECTs are shown as rows")
        terminal.ask("\\timing\r")
        terminal.until("timing is off")
        terminal.ask("SELECT temp AS warm FROM sensors WHERE temp > 99;\r")
        terminal.until("99.5")
        terminal.ask("\\timing\r")
        assert "-- 1 row" not in terminal.until("timing is on")
        terminal.ask("\\format csv\r")
        terminal.until("rows are csv")
        terminal.ask(f"\\o {file}\r")
        terminal.until("rows go to")
        terminal.ask("SELECT device, temp FROM sensors WHERE temp < 2;\r")
        assert "d0,0.5" not in terminal.until("-- 2 rows")
        assert file.read_text() == "device,temp\nd0,0.5\nd1,1.5\n"
        terminal.ask("\\o\r")
        terminal.until("rows go to the terminal")
        terminal.ask("SELECT device, temp FROM sensors WHERE temp < 1;\r")
        terminal.until("d0,0.5")
        terminal.ask("\x04")
        assert terminal.ended() == 0


def test_what_is_larger_than_the_screen_goes_through_the_pager(broker: Barnabas, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f'#!/bin/sh\necho "paged $LESSSECURE"\ncat > {tmp_path}/paged\n')
    pager.chmod(0o755)
    command = [*COMMAND, "sql", "--server", broker.address]
    with Terminal(command, state_of(tmp_path) | {"PAGER": str(pager)}) as terminal:
        terminal.ask("SELECT temp FROM sensors WHERE temp < 3;\r")
        assert "paged" not in terminal.until("-- 3 rows")
        terminal.ask("SELECT temp FROM sensors;\r")
        terminal.until("paged 1")
        terminal.until("-- 100 rows")
        assert len((tmp_path / "paged").read_text().splitlines()) > 100
        terminal.ask("\x04")
        assert terminal.ended() == 0


def test_names_are_completed(broker: Barnabas, tmp_path: Path) -> None:
    with shell(broker, tmp_path) as terminal:
        terminal.ask("SELECT count(*) FROM sens")
        terminal.until("topic")  # shown in the menu
        terminal.press("\t;\r")
        terminal.until("100")
        terminal.ask("\x04")
        assert terminal.ended() == 0


def test_ctrl_c_ends_a_line_and_not_the_shell(broker: Barnabas, tmp_path: Path) -> None:
    with shell(broker, tmp_path) as terminal:
        terminal.ask("SELECT 'never closed\r")
        terminal.until("..>")
        terminal.press("\x03")
        terminal.ask("SELECT 40 + 2 AS n;\r")
        terminal.until("42")
        terminal.ask("\x04")
        assert terminal.ended() == 0


def test_a_broker_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    with Barnabas(tmp_path / "broker") as broker:
        sql(broker, "CREATE TOPIC t (a INT)")
        sql(broker, "INSERT INTO t VALUES (17)")
        with shell(broker, tmp_path) as terminal:
            terminal.ask("SELECT a FROM t;\r")
            terminal.until("17")
            terminal.until("-- 1 row")
            broker.kill()
            terminal.ask("SELECT a + 1 FROM t;\r")
            terminal.until("127.0.0.1")
            broker.start()
            terminal.ask("SELECT a + 2 AS b FROM t;\r")
            terminal.until("19")
            terminal.ask("\x04")
            assert terminal.ended() == 0


def test_without_prompt_toolkit_lines_are_read_as_they_come(broker: Barnabas, tmp_path: Path) -> None:
    (tmp_path / "prompt_toolkit.py").write_text("raise ImportError('not here')")
    command = [*COMMAND, "sql", "--server", broker.address]
    with Terminal(command, state_of(tmp_path) | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}) as terminal:
        terminal.until("pip install prompt_toolkit")
        terminal.until("barnabas>")
        terminal.press("SELECT count(*)\n")
        terminal.until("..>")
        terminal.press("FROM sensors;\n")
        terminal.until("100")
        terminal.press("\x04")
        assert terminal.ended() == 0


@pytest.mark.long
def test_spark_stays_for_the_next_statement(broker: Barnabas, tmp_path: Path) -> None:
    with shell(broker, tmp_path, "--master", "local[2]") as terminal:
        terminal.ask("SELECT hash(device) AS h FROM sensors ORDER BY _offset LIMIT 1;\r")
        terminal.until("with Spark")
        terminal.ask("\\g\r")
        assert "starting Spark" not in terminal.until("with Spark")
        terminal.ask("SELECT sum(id % 7) FROM range(100000000000000);\r")
        terminal.until("tasks done")
        terminal.press("\x03")
        terminal.until("ended: the statement was interrupted")
        terminal.ask("SELECT hash(device) AS h FROM sensors ORDER BY _offset LIMIT 1;\r")
        terminal.until("with Spark")
        terminal.ask("\x04")
        assert terminal.ended() == 0


def java_of(terminal: Terminal) -> psutil.Process:
    """The JVM of a shell."""
    (java,) = [each for each in psutil.Process(terminal.process.pid).children(True) if each.name() == "java"]
    return java


#: Two tasks that run for minutes, and do not notice that they are cancelled.
TIGHT_LOOPS = (
    "SELECT sum(aggregate(sequence(1L, 60000L + id), 0L, (a, x) -> a + aggregate(sequence(1L, 60000L), 0L, "
    "(b, y) -> b + y * x % 7))) FROM range(0, 2, 1, 2)"
)


@pytest.mark.long
def test_after_tasks_that_cannot_be_interrupted_and_after_its_death_spark_starts_again(
    broker: Barnabas, tmp_path: Path
) -> None:
    with shell(broker, tmp_path, "--master", "local[2]") as terminal:
        terminal.ask(f"{TIGHT_LOOPS};\r")
        terminal.until("0 of 2 tasks done")
        java = java_of(terminal)
        before = sum(java.cpu_times()[:2])
        until(lambda: sum(java.cpu_times()[:2]) > before + 5, "the tasks are in their loops")
        terminal.press("\x03")
        terminal.until("ended: the statement was interrupted")
        terminal.ask("SELECT hash(device) AS h FROM sensors ORDER BY _offset LIMIT 1;\r")
        assert "starting Spark" in terminal.until("with Spark")
        java = java_of(terminal)
        java.kill()
        terminal.ask("\\g\r")
        terminal.until("Spark's JVM has ended: run the statement again")
        terminal.ask("\\g\r")
        assert "starting Spark" in terminal.until("with Spark")
        terminal.ask("\x04")
        assert terminal.ended() == 0
