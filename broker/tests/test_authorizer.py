"""The authorizer compared with a plain evaluation of its ACLs; names that clients make up, and errors."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.log import EventLog
from barnabas.broker.security import audit as audits
from barnabas.broker.security import authorizer as authorizers
from barnabas.broker.security.acls import Acls, record_of
from barnabas.broker.security.audit import Audit
from barnabas.broker.security.authorizer import AclAuthorizer, parse_super_users
from barnabas.broker.security.operations import (
    ALTER_TOPIC,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    Right,
    rights_of,
)
from barnabas.broker.security.principals import Principal
from barnabas.wire.acls import Acl, AclFilter, Operation, ResourceType
from barnabas.wire.records.cluster_metadata import RemoveAccessControlEntryRecord
from barnabas.wire.tests.strategies import examples

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HERE, THERE = "10.0.0.1", "10.0.0.2"
LITERAL, PREFIXED, DENY, ALLOW = 3, 4, 2, 3


def acls_of(acls: Iterable[Acl]) -> Acls:
    """All given ACLs, without duplicates, with their numbers as ids."""
    found = Acls()
    for number, acl in enumerate(dict.fromkeys(acls)):
        found.apply(record_of(number.to_bytes(16, "big"), acl))
    return found


def authorizer_of(
    acls: Acls, said: io.StringIO | None = None, now: Callable[[], float] = lambda: 0.0, **settings: object
) -> AclAuthorizer:
    log = EventLog(said or io.StringIO())
    without = bool(settings.get("without_acl", False))
    return AclAuthorizer(acls, str(settings.get("super_users", "")), without, Audit(log, now), log)


def topic_acl(name: str = "t", **fields: object) -> Acl:
    acl = Acl(ResourceType.TOPIC, name, LITERAL, "User:alice", "*", Operation.READ, ALLOW)
    return acl._replace(**fields)  # type: ignore[arg-type]


# --- against a plain evaluation ---------------------------------------------------------------------------------------

_IMPLIES = {
    Operation.DESCRIBE: {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS},
}


def is_about(acl: Acl, kind: int, name: str) -> bool:
    if acl.type != kind:
        return False
    return name.startswith(acl.name) if acl.pattern == PREFIXED else acl.name in (name, "*")


def is_by(acl: Acl, who: Principal, host: str) -> bool:
    return acl.principal in (str(who), "User:*") and acl.host in (host, "*")


def plainly(acls: Iterable[Acl], who: Principal, host: str, right: Right, name: str) -> bool:
    """Examine one ACL after the other, as KIP-11 describes it."""
    allowed = False
    for acl in acls:
        if is_about(acl, right.type, name) and is_by(acl, who, host):
            if acl.permission == DENY and acl.operation in (Operation.ALL, right.operation):
                return False
            implied = _IMPLIES.get(right.operation, {right.operation})
            allowed = allowed or (acl.permission == ALLOW and acl.operation in {Operation.ALL, *implied})
    return allowed


ACLS = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from(["*", "a", "ab", "abcd", "hard"]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:alice", "User:alice", "User:*", "User:bob", "Group:alice"]),
    st.sampled_from(["*", "*", HERE, THERE]),
    # Few values, so that several ACLs often apply to the same question.
    st.sampled_from([Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS])
    | st.sampled_from(list(Operation)),
    st.sampled_from([DENY, ALLOW]),
)
#: ACLs for writing topics, most of them for alice.
WRITES = st.builds(
    Acl,
    st.just(ResourceType.TOPIC),
    st.sampled_from(["*", "a", "ab", "abcd", "hard"]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:alice", "User:*", "User:bob"]),
    st.sampled_from(["*", HERE]),
    st.sampled_from([Operation.ALL, Operation.WRITE, Operation.WRITE, Operation.READ]),
    st.sampled_from([DENY, ALLOW]),
)
#: Few values, so that a pattern often has both an allow and a deny.
FEW = st.builds(
    topic_acl,
    st.sampled_from(["a", "ab", "*"]),
    pattern=st.sampled_from([LITERAL, PREFIXED]),
    operation=st.just(Operation.WRITE),
    permission=st.sampled_from([DENY, ALLOW]),
)
WHO = st.sampled_from([ALICE, ALICE, BOB, Principal("Group", "alice"), Principal("User", "*")])


@examples(300, 5000)
@given(st.lists(ACLS, max_size=12), st.data())
def test_decisions_are_those_of_a_plain_evaluation(acls: list[Acl], data: st.DataObject) -> None:
    known = acls_of(acls)
    authorizer = authorizer_of(known)
    left = list(dict.fromkeys(acls))
    questions = [
        (who, host, right, name)
        for who in (ALICE, Principal("Group", "alice"))
        for host in (HERE, "10.0.0.9")
        for right in (*rights_of(ResourceType.TOPIC), READ_GROUP)
        for name in ("a", "abcd", "b", "*", "c")
    ]
    while True:
        for question in questions:
            assert authorizer.allows(*question) == plainly(left, *question), question
        if not left:
            break
        gone = data.draw(st.sampled_from(left))
        ids = dict(found for found in known.matching(AclFilter(1, None, 1, None, None, 1, 1)) if found)
        known.apply(RemoveAccessControlEntryRecord(id=ids[gone]))
        left.remove(gone)
    kind = ResourceType.TOPIC
    assert not any(known.index.has_any(kind, name) for name in ("a", "abcd", "*"))


def plainly_any(acls: list[Acl], who: Principal, host: str, right: Right) -> bool:
    """The rule of Kafka for any resource of a type."""
    if plainly(acls, who, host, right, "hardcode"):
        return True
    mine = [a for a in acls if a.type == right.type and is_by(a, who, host)]
    mine = [a for a in mine if a.operation in (Operation.ALL, right.operation)]
    denied = [a for a in mine if a.permission == DENY]
    if any(a.pattern == LITERAL and a.name == "*" for a in denied):
        return False
    for acl in mine:
        if acl.permission == ALLOW:
            if acl.pattern == LITERAL and acl.name == "*":
                return True
            same = acl.pattern == LITERAL and any(d.pattern == LITERAL and d.name == acl.name for d in denied)
            if not same and not any(d.pattern == PREFIXED and acl.name.startswith(d.name) for d in denied):
                return True
    return False


@examples(300, 5000)
@given(st.lists(WRITES, max_size=6) | st.lists(FEW, max_size=4), WHO, st.sampled_from([HERE, "10.0.0.9"]))
def test_any_resource_is_as_a_plain_evaluation_says(acls: list[Acl], who: Principal, host: str) -> None:
    authorizer = authorizer_of(acls_of(acls))
    assert authorizer.allows_any(who, host, WRITE_TOPIC) == plainly_any(acls, who, host, WRITE_TOPIC)


@examples(200, 2000)
@given(st.lists(ACLS, max_size=8), st.sampled_from(["a", "ab", "c"]))
def test_a_resource_without_an_acl_is_for_everyone_where_it_is_set_so(acls: list[Acl], name: str) -> None:
    authorizer = authorizer_of(acls_of(acls), without_acl=True)
    has_acl = any(is_about(acl, ResourceType.TOPIC, name) for acl in acls)
    expected = plainly(acls, ALICE, HERE, READ_TOPIC, name) if has_acl else True
    assert authorizer.allows(ALICE, HERE, READ_TOPIC, name) == expected


# --- single cases -----------------------------------------------------------------------------------------------------


def test_an_allow_stays_when_a_deny_beside_it_is_taken_away() -> None:
    known = acls_of([topic_acl(permission=ALLOW), topic_acl(permission=DENY)])
    authorizer = authorizer_of(known)
    assert not authorizer.allows(ALICE, HERE, READ_TOPIC, "t")
    known.apply(RemoveAccessControlEntryRecord(id=(1).to_bytes(16, "big")))
    assert authorizer.allows(ALICE, HERE, READ_TOPIC, "t")
    assert not authorizer.allows(ALICE, HERE, ALTER_TOPIC, "t")


def test_an_acl_that_is_twice_in_the_log_goes_with_either_id() -> None:
    for gone in (b"1" * 16, b"2" * 16):
        known = Acls()
        for acl_id in (b"1" * 16, b"2" * 16):
            known.apply(record_of(acl_id, topic_acl()))
        assert len(known) == 1
        known.apply(RemoveAccessControlEntryRecord(id=gone))
        assert not authorizer_of(known).allows(ALICE, HERE, READ_TOPIC, "t")
        assert list(known.records()) == []


def test_an_acl_of_an_id_that_is_taken_away_can_come_again() -> None:
    known = Acls()
    for _ in range(2):
        known.apply(record_of(b"1" * 16, topic_acl()))
        assert authorizer_of(known).allows(ALICE, HERE, DESCRIBE_TOPIC, "t")
        known.apply(RemoveAccessControlEntryRecord(id=b"1" * 16))
        assert not authorizer_of(known).allows(ALICE, HERE, DESCRIBE_TOPIC, "t")


def test_super_users_may_do_everything_also_what_is_denied() -> None:
    acls = acls_of([topic_acl(principal="User:*", operation=Operation.ALL, permission=DENY)])
    authorizer = authorizer_of(acls, super_users=" User:alice ; User:CN=ops,O=Example;")
    assert authorizer.allows(ALICE, HERE, DESCRIBE_TOPIC_CONFIGS, "t")
    assert authorizer.allows(Principal("User", "CN=ops,O=Example"), HERE, READ_TOPIC, "t")
    assert authorizer.allows_any(ALICE, HERE, WRITE_TOPIC)
    for other in (BOB, Principal("Group", "alice"), Principal("User", "Alice"), Principal("User", "CN=ops")):
        assert not authorizer.allows(other, HERE, READ_TOPIC, "t")


def test_a_super_user_without_a_type_is_refused() -> None:
    with pytest.raises(ValueError, match="a principal as TYPE:NAME"):
        parse_super_users("User:a;admin")


@pytest.mark.parametrize(
    ("acl_host", "host"),
    [("::1", "::1"), ("0:0:0:0:0:0:0:1", "::1"), ("10.0.0.1", "::ffff:10.0.0.1"), ("FE80::1", "fe80::1")],
)
def test_an_address_is_the_same_in_each_of_its_forms(acl_host: str, host: str) -> None:
    known = acls_of([topic_acl(host="*"), topic_acl(host=acl_host, permission=DENY)])
    assert not authorizer_of(known).allows(ALICE, host, READ_TOPIC, "t")
    assert authorizer_of(known).allows(ALICE, "192.0.2.1", READ_TOPIC, "t")


def test_two_forms_of_one_address_are_two_acls_that_go_one_by_one() -> None:
    known = acls_of([topic_acl(host="::1"), topic_acl(host="0:0:0:0:0:0:0:1")])
    known.apply(RemoveAccessControlEntryRecord(id=(0).to_bytes(16, "big")))
    assert authorizer_of(known).allows(ALICE, "::1", READ_TOPIC, "t")
    known.apply(RemoveAccessControlEntryRecord(id=(1).to_bytes(16, "big")))
    assert not authorizer_of(known).allows(ALICE, "::1", READ_TOPIC, "t")


@pytest.mark.parametrize("name", ["User:alice", "alice,bob", "al\u00edce", "ali\u0301ce", "Alice", "alice ", "*", ""])
def test_names_are_compared_as_they_are(name: str) -> None:
    """A name that resembles another name or a principal is still a name of its own."""
    others = {"alice", "User:alice", "alice,bob", "al\u00edce", "ali\u0301ce", "Alice", "alice ", "bob"} - {name}
    authorizer = authorizer_of(acls_of([topic_acl(principal=f"User:{other}") for other in others]))
    assert not authorizer.allows(Principal("User", name), HERE, READ_TOPIC, "t")
    assert authorizer_of(acls_of([topic_acl(principal=f"User:{name}")])).allows(
        Principal("User", name), HERE, READ_TOPIC, "t"
    )


def test_whatever_goes_wrong_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    known = acls_of([topic_acl()])
    authorizer = authorizer_of(known, said)

    def fail(*_: object) -> bool:
        raise MemoryError("no room")

    monkeypatch.setattr(known.index, "decide", fail)
    assert not authorizer.allows(ALICE, HERE, READ_TOPIC, "t")
    assert not authorizer.allows_any(ALICE, HERE, READ_TOPIC)
    assert "authorizer.failed" in said.getvalue()
    monkeypatch.undo()
    assert authorizer.allows(ALICE, HERE, READ_TOPIC, "t"), "a failure is not remembered"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizers, "_MOST_DECISIONS", 10)
    authorizer = authorizer_of(acls_of([topic_acl("t", pattern=PREFIXED)]))
    for number in range(1000):
        assert authorizer.allows(ALICE, HERE, READ_TOPIC, f"t{number}")
        assert len(authorizer._decisions) <= 10
    assert authorizer.allows(ALICE, HERE, READ_TOPIC, "t" * 10_000)
    assert not any(len(name or "") > 255 for _, _, _, name in authorizer._decisions)


# --- the log ----------------------------------------------------------------------------------------------------------


def test_a_denial_is_one_line_that_says_all() -> None:
    said = io.StringIO()
    authorizer_of(Acls(), said).allows(Principal("User", "a b\n2026 forged"), HERE, READ_TOPIC, "t\u202e", api="Fetch")
    (line,) = said.getvalue().splitlines()
    assert line.endswith(
        'info authorizer.denied principal="User:a b\\n2026 forged" result=Denied operation=READ host=10.0.0.1 '
        'resource="TOPIC:LITERAL:t\\u202e" request=Fetch'
    )


def test_what_is_allowed_is_told_to_who_looks_for_it_only() -> None:
    for level, lines in (("info", 0), ("debug", 2)):
        said = io.StringIO()
        log = EventLog(said, level)
        authorizer = AclAuthorizer(acls_of([topic_acl()]), "", False, Audit(log, lambda: 0.0), log)
        for _ in range(2):
            assert authorizer.allows(ALICE, HERE, READ_TOPIC, "t", api="Fetch")
        assert said.getvalue().count("authorizer.allowed") == lines


def test_denials_are_bounded_for_each_principal_and_in_all() -> None:
    said, seconds = io.StringIO(), [0.0]
    authorizer = authorizer_of(Acls(), said, lambda: seconds[0])
    for _ in range(1000):
        authorizer.allows(ALICE, HERE, READ_TOPIC, "t")
    assert said.getvalue().count("authorizer.denied ") == audits.LINES_OF_ONE
    authorizer.allows(BOB, HERE, READ_TOPIC, "t")
    assert "User:bob" in said.getvalue()
    for number in range(1000):
        authorizer.allows(Principal("User", f"u{number}"), HERE, READ_TOPIC, "t")
    assert said.getvalue().count("authorizer.denied ") == audits.LINES_PER_SECOND
    seconds[0] = 1.0
    authorizer.allows(ALICE, HERE, READ_TOPIC, "t", quiet=True)
    assert "left_out" not in said.getvalue()
    authorizer.allows(ALICE, HERE, READ_TOPIC, "t")
    left = 2001 - audits.LINES_PER_SECOND
    assert f"audit.left_out lines={left}\n" in said.getvalue()
