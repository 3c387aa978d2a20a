"""What the server's own tables say about columns, without a server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.connect.binlog.logged import is_known
from barnabas.connect.binlog.server import values_of

_ESCAPES = str.maketrans({"\\": "\\\\", "\0": "\\0", "\n": "\\n", "\r": "\\r", "'": "''"})


_TEXTS = st.lists(st.text(alphabet="a'\\0nrZ\0\n\r\x1a,()ö", max_size=6), min_size=1, max_size=9)


@given(_TEXTS, st.sampled_from(["enum", "set"]))
def test_the_texts_of_a_type_are_those_that_the_server_wrote_into_it(values: list[str], kind: str) -> None:
    written = ",".join(f"'{value.translate(_ESCAPES)}'" for value in values)
    assert values_of(f"{kind}({written})") == tuple(values)


def test_a_member_that_the_server_s_own_tables_have_as_a_question_mark_is_not_known() -> None:
    assert [is_known(text, "utf8mb4") for text in ("ö", "?", "")] == [True, False, True]
    assert [is_known(text, "latin1") for text in ("ö", "?", "ł")] == [True, True, False]
    assert not is_known("a", "binary")
    assert not is_known("ა", "geostd8")


def test_another_type_has_no_texts() -> None:
    assert values_of("varchar(10)") == ()
