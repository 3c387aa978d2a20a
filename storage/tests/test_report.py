"""Reports of storage without a broker's log."""

from __future__ import annotations

import pytest

from barnabas.storage.report import tell_logging


def test_an_event_is_one_line_in_the_logs_form_whatever_its_values(caplog: pytest.LogCaptureFixture) -> None:
    tell_logging("log.damaged", topic="a b", reason="100% of it\n2026-01-01T00:00:00.000Z error forged", position=7)
    assert [record.getMessage() for record in caplog.records] == [
        'log.damaged topic="a b" reason="100% of it\\n2026-01-01T00:00:00.000Z error forged" position=7'
    ]
