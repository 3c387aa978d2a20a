"""Columns that are left out or masked."""

from __future__ import annotations

import pytest

from barnabas.connect.binlog.charsets import literal
from barnabas.connect.binlog.columns import Column, Layout
from barnabas.connect.binlog.masks import Masks
from barnabas.connect.binlog.server import RefusedError

KEY = b"0123456789abcdef"


def column(name: str) -> Column:
    return Column(name, "int", lambda data, at: (0, at), str)


LAYOUT = Layout("shop", "users", tuple(column(name) for name in ("mail", "id", "phone", "name")), (1,))


def test_columns_are_dropped_null_or_hashed_and_the_key_is_found() -> None:
    masks = Masks(["shop.*.phone=drop", "shop.users.mail=hash", "*.*.n?me=null"], KEY)
    layout, shown = masks.masked(LAYOUT)
    assert [each.name for each in layout.columns] == ["mail", "id", "name"]
    assert layout.key == (1,)
    one, same, other = (shown([mail, 5, 6, 7]) for mail in (1, 1, 2))
    assert one[1:] == [5, None]
    assert one == same != other
    assert layout.literals(one) == [literal(str(one[0])), "5", "NULL"]
    assert shown([None, 5, 6, 7]) == [None, 5, None]
    assert Masks(["shop.users.mail=hash"], b"another key 1234").masked(LAYOUT)[1]([1, 5, 6, 7])[0] != one[0]
    assert masks.masked(LAYOUT)[0] is layout


def test_tables_without_masks_are_as_they_are() -> None:
    layout, shown = Masks(["other.users.*=null"], KEY).masked(LAYOUT)
    assert layout is LAYOUT
    assert shown([1, 2, 3, 4]) == [1, 2, 3, 4]


def test_masks_that_cannot_be() -> None:
    for mask in ("a.b=null", "a.b.c", "a.b.c=x", "=null"):
        with pytest.raises(ValueError, match=r"expected DB\.TABLE\.COLUMN=WAY"):
            Masks([mask], KEY)
    with pytest.raises(ValueError, match="BARNABAS_MASK_KEY"):
        Masks(["a.b.c=hash"], b"short")
    with pytest.raises(RefusedError, match=r"shop\.users\.id is of the primary key"):
        Masks(["*.*.*=null"], KEY).masked(LAYOUT)
