"""The start of an `export`, as a user writes it."""

from __future__ import annotations

import pytest

from barnabas.client.errors import ClientError
from barnabas.scripts.export import _since


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("earliest", None),
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:00+01:00", 0),
    ],
)
def test_a_time_is_understood(text: str, ms: int | None) -> None:
    assert _since(text) == ms


@pytest.mark.parametrize("text", ["latest", "yesterday", "-5", ""])
def test_what_is_no_time_is_told_with_what_is(text: str) -> None:
    with pytest.raises(ClientError, match=r"--from .*expected earliest, milliseconds since 1970, or a time like"):
        _since(text)
