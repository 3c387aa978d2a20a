"""Which quota applies to a client: the eight levels, compared with a plain list of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.quotas.precedence import Limit, find_limit
from barnabas.broker.settings.quotas import Entity, entity_of

KEY, OTHER = "producer_byte_rate", "consumer_byte_rate"
ALL = "all"  # stands for a part that the entity does not name

#: As Apache Kafka's documentation lists them: which user and client id an entity names, None for the default.
LEVELS = [("u", "c"), ("u", None), ("u", ALL), (None, "c"), (None, None), (None, ALL), (ALL, "c"), (ALL, None)]


def entity(user: str | None, client_id: str | None) -> Entity:
    names = [("user", user)] if user != ALL else []
    names += [("client-id", client_id)] if client_id != ALL else []
    return entity_of(names)


def counted(user: str | None, client_id: str | None) -> tuple[str, str]:
    """A default counts for each one separately; a part that is not named is shared by all."""
    return "" if user == ALL else "u", "" if client_id == ALL else "c"


@given(st.dictionaries(st.sampled_from(LEVELS), st.sampled_from([KEY, OTHER])))
def test_the_first_level_that_has_the_key_counts(given_levels: dict[tuple[str | None, str | None], str]) -> None:
    quotas = {entity(*level): {key: float(LEVELS.index(level) + 1)} for level, key in given_levels.items()}
    quotas[entity("someone else", "c")] = quotas[entity("u", "something else")] = {KEY: 99.0}
    wanted = next((each for each in LEVELS if given_levels.get(each) == KEY), None)
    found = find_limit(quotas, KEY, "u", "c")
    assert found == (None if wanted is None else Limit(LEVELS.index(wanted) + 1.0, *counted(*wanted)))


def test_each_key_goes_by_itself() -> None:
    quotas = {entity("u", "c"): {KEY: 1.0}, entity("u", ALL): {OTHER: 2.0}}
    assert find_limit(quotas, KEY, "u", "c") == Limit(1.0, "u", "c")
    assert find_limit(quotas, OTHER, "u", "c") == Limit(2.0, "u", "")
    assert find_limit(quotas, OTHER, "v", "c") is None
