"""Which tables are copied, after any renames."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.connect.binlog.maker import Maker, Settings
from barnabas.connect.binlog.masks import Masks
from barnabas.connect.binlog.messages import format_of
from barnabas.connect.binlog.naming import Chosen, Topics
from barnabas.connect.binlog.place import Copied, Position, Table
from barnabas.connect.binlog.reader import Begin, End, Place, Statement
from barnabas.connect.binlog.server import RefusedError, Server
from barnabas.connect.mysql.source import Source
from barnabas.wire.tests.strategies import examples

AT = Place("0-1-5", "bin.1", 4)
NAMES = "abcdefg"
STEPS = st.lists(
    st.tuples(st.sampled_from(["rename", "copy", "begin", "create", "drop"]), *[st.sampled_from(NAMES)] * 2)
)


def maker(copied: Copied, tables: tuple[str, ...] = ("d.*",)) -> Maker:
    settings = Settings(name="s", tables=tables, per="database")
    server = Server(Source("127.0.0.1", 3306, "u", ""), 7)
    topics, chosen = Topics("database", ""), Chosen(tables)
    position = Position(place=AT, copied=copied)
    return Maker(server, settings, format_of("tdsql"), topics, chosen, Masks((), b""), position)


def run(made: Maker, sql: str) -> list[str]:
    """The statements that result from one."""
    made.take(Begin("0-1-6", 1, AT, 4, 99), 0)
    made.take(Statement("d", sql, 1), 0)
    made.take(End(5, 1, Place("0-1-6", "bin.1", 400)), 0)
    return [msgspec.json.decode(out.value or b"")["sql"] for out in made.chunk().messages]


def after(made: Maker) -> Copied:
    copied = made.chunk().position.copied
    assert copied is not None
    return copied


@examples(100, 500)
@given(st.sets(st.sampled_from(NAMES), min_size=1), STEPS)
async def test_each_table_is_copied_once(names: set[str], steps: list[tuple[str, str, str]]) -> None:
    """Rename, create and drop a server's tables while they are copied.

    Each table has the number of whoever made it. The resulting statements, run by a target with the copied tables, must
    lead to the same tables.
    """
    source = {name: number for number, name in enumerate(sorted(names))}
    target: dict[str, int] = {}
    copied = Copied()
    made = len(source)

    def key(name: str) -> Table:
        return ("d", name)

    def next_table() -> str | None:
        left = [name for name in sorted(source) if not copied.has_whole(key(name))]
        return min(left, key=lambda name: (key(name) in copied.left, name), default=None)

    def follow(sql: str) -> None:
        nonlocal copied
        one = maker(copied)
        for statement in run(one, sql):
            words = statement.replace("`", "").replace("d.", "").replace(",", " ").split()
            if words[0] == "RENAME":
                for before, behind in zip(words[2::3], words[4::3], strict=True):
                    assert behind not in target
                    target[behind] = target.pop(before)
            elif words[0] == "CREATE":
                assert words[2] not in target
                target[words[2]] = source[words[2]]
            else:
                target.pop(words[-1], None)
        copied = after(one)

    def forget() -> None:
        """Forget the copy of a table that does not exist any more."""
        nonlocal copied
        table = copied.table
        if table not in source and copied.has_part(key(table)) and copied.after is None:
            target.pop(table, None)
            copied = msgspec.structs.replace(copied, whole=True)

    def copy(*, whole: bool) -> None:
        nonlocal copied
        forget()
        table = next_table()
        if table is None:
            return
        target.pop(table, None) if copied.has_part(key(table)) else None
        assert table not in target, "its rows are not there yet"
        target[table] = source[table]
        copied = copied.beginning(key(table), 0)
        copied = msgspec.structs.replace(copied, whole=whole, after=None if whole else ("1",))

    for step, one, other in steps:
        if step == "rename" and one in source and other not in source:
            source[other] = source.pop(one)
            try:
                follow(f"RENAME TABLE {one} TO {other}")
            except RefusedError:
                assert copied.has_part(key(other))
                return
        elif step == "create" and one not in source:
            source[one], made = made, made + 1
            follow(f"CREATE TABLE {one} (id INT)")
        elif step == "drop" and one in source:
            del source[one]
            follow(f"DROP TABLE {one}")
        elif step in ("copy", "begin"):
            copy(whole=step == "copy")
        assert {name: source[name] for name in source if copied.has_whole(key(name))}.items() <= target.items()
    while next_table() is not None:
        copy(whole=True)
    forget()
    assert target == source


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("RENAME TABLE a TO z", ["RENAME TABLE a TO z"]),
        ("RENAME TABLE x TO y", []),
        ("RENAME TABLE a TO t, x TO a, t TO x", ["RENAME TABLE `d`.`a` TO `d`.`t`, `d`.`t` TO `d`.`x`"]),
        ("ALTER TABLE a ADD COLUMN c INT, RENAME TO z", ["ALTER TABLE a ADD COLUMN c INT, RENAME TO z"]),
        ("ALTER TABLE x RENAME TO b", []),
        ("RENAME TABLE m TO b", []),
        ("RENAME TABLE other.a TO b", []),
        ("DROP TABLE a, x", ["DROP TABLE IF EXISTS `d`.`a`"]),
    ],
)
async def test_a_statement_about_tables_that_are_copied(sql: str, expected: list[str]) -> None:
    made = maker(Copied(database="d", table="m", begun=True, after=("1",)))
    assert run(made, sql) == expected


async def test_tables_swap_their_names() -> None:
    made = maker(Copied(database="d", table="m", begun=True, whole=True))
    run(made, "RENAME TABLE a TO t, x TO a, t TO x")
    copied = after(made)
    assert (copied.left, copied.ahead) == ((("d", "a"),), (("d", "x"),))
    assert not copied.has(("d", "a"))
    assert copied.has(("d", "x"))


async def test_what_is_copied_in_part_begins_anew_under_another_name() -> None:
    made = maker(Copied(database="d", table="m", begun=True, after=("1",)))
    assert run(made, "RENAME TABLE m TO b") == []
    copied = after(made)
    assert not copied.has(("d", "m"))
    assert not copied.has(("d", "b"))
    assert copied.left == (("d", "b"),)


async def test_a_table_takes_the_name_of_one_that_is_copied_in_part() -> None:
    made = maker(Copied(database="d", table="m", begun=True, after=("1",)))
    with pytest.raises(RefusedError, match="start again"):
        run(made, "RENAME TABLE m TO t, a TO m")
