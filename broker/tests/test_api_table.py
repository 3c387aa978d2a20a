"""The README says what is served."""

from __future__ import annotations

from pathlib import Path

from broker.api_table import renewed


def test_the_readme_has_the_registrys_table():
    text = (Path(__file__).parents[2] / "README.md").read_text()
    assert renewed(text) == text, "run: python -m broker.api_table README.md"
