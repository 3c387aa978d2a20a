"""A page of a list equals the same slice of the whole sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.http.views import lists
from barnabas.broker.http.views.lists import page_of, those

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100)), max_size=40)


@given(ROWS, st.integers(0, 45), st.integers(1, 20), st.booleans(), st.integers(1, 7))
async def test_a_page_is_a_piece_of_the_sorted_list(
    rows: list[tuple[int, int]], start: int, limit: int, reverse: bool, piece: int
) -> None:
    before, lists.PIECE = lists.PIECE, piece
    try:
        found = await page_of(rows, lambda row: row[0], start=start, limit=limit, reverse=reverse)
    finally:
        lists.PIECE = before
    assert found == sorted(rows, key=lambda row: row[0], reverse=reverse)[start : start + limit]


async def test_rows_are_filtered() -> None:
    assert await those(range(1000), lambda row: row % 100 == 7) == list(range(7, 1000, 100))
