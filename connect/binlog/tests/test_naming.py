"""Which topic belongs to which table, and that no two tables share one."""

from __future__ import annotations

import pytest

from barnabas.connect.binlog.naming import NameClashError, Topics


@pytest.mark.parametrize(
    ("per", "prefix", "topic"),
    [
        ("table", "", "shop.orders"),
        ("table", "p", "p.orders"),
        ("database", "", "shop"),
        ("database", "p", "p.shop"),
        ("server", "p", "p"),
    ],
)
def test_the_topic_of_a_table(per: str, prefix: str, topic: str) -> None:
    assert Topics(per, prefix).of("shop", "orders") == topic


def test_a_character_that_no_topic_may_have_is_written_as_its_number() -> None:
    assert Topics("table", "").of("shop", "bücher $1") == "shop.b_u00fccher_u0020_u00241"


def test_two_tables_never_share_a_topic() -> None:
    topics = Topics("table", "p")
    topics.of("one", "orders")
    with pytest.raises(NameClashError, match=r"one\.orders and two\.orders would share the topic p\.orders"):
        topics.of("two", "orders")


@pytest.mark.parametrize(
    ("per", "prefix"), [("table", "barnabas"), ("server", "barnabas.connect"), ("server", "barnabas.connect.status")]
)
def test_no_table_has_the_topic_of_the_positions(per: str, prefix: str) -> None:
    with pytest.raises(NameClashError, match="which has the status of subscriptions: choose another --prefix"):
        Topics(per, prefix).of("shop", "connect")


def test_the_bounds_of_transactions_are_in_the_topic_of_the_rows() -> None:
    topics = Topics("server", "all of it")
    assert topics.frames == topics.of("shop", "orders") == topics.statements("shop") == "all_u0020of_u0020it"
    assert Topics("table", "p").frames is None
    with pytest.raises(NameClashError, match=r"everything would go to barnabas\.connect"):
        _ = Topics("server", "barnabas.connect").frames
