"""The tables of the reference agree with the code."""

from __future__ import annotations

import re

import pytest

from barnabas.broker.doc_tables import put
from barnabas.streams.query.functions import FUNCTIONS
from compat_tests.site.tables import TABLES
from compat_tests.tools import ROOT


@pytest.mark.parametrize("table", TABLES)
def test_the_reference_has_the_codes_tables(table: str) -> None:
    file, make = TABLES[table]
    text = (ROOT / file).read_text()
    assert f"<!-- {table}: begin -->" in text
    made = make()
    assert len(made) > 40
    assert put(table, made, text) == text, "run: python -m compat_tests.site.tables"


def test_every_command_is_in_the_reference() -> None:
    found = re.findall(r"^##+ barnabas (.+)$", (ROOT / "docs/reference/commands.md").read_text(), re.MULTILINE)
    assert {"serve", "topics create", "groups reset", "offsets migrate", "connect binlog", "sql", "trace"} <= set(found)
    assert len(found) == len(set(found))


def test_every_function_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/sql.md").read_text()
    section = page[page.index("<!-- functions: begin -->") : page.index("<!-- functions: end -->")]
    assert {name.replace("\\", "") for name in re.findall(r"`([^`]+)`", section)} == FUNCTIONS
