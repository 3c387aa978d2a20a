"""The tables in the docs agree with the code."""

from __future__ import annotations

import pytest

from barnabas.broker.doc_tables import ROOT, TABLES, renewed


@pytest.mark.parametrize("table", TABLES)
def test_the_docs_have_the_codes_tables(table: str) -> None:
    text = (ROOT / TABLES[table][0]).read_text()
    assert f"<!-- {table}: begin -->" in text
    assert renewed(table, text) == text, "run: python -m barnabas.broker.doc_tables"
