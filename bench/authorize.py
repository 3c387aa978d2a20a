"""The CPU time of one decision of the authorizer, in microseconds, by the number and the kind of ACLs.

    python -m bench.authorize [--acls 10000] [--rounds 9]

`remembered` decisions answer repeated questions from a cache; others are made from the ACLs. Figures are medians over
rounds.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import cycle

from barnabas.broker.log import EventLog
from barnabas.broker.security.acls import Acls, record_of
from barnabas.broker.security.audit import Audit
from barnabas.broker.security.authorizer import AclAuthorizer
from barnabas.broker.security.operations import READ_TOPIC, WRITE_TOPIC
from barnabas.broker.security.principals import Principal
from barnabas.wire.acls import Acl, Operation, PatternType, Permission, ResourceType
from barnabas.wire.table import table

QUESTIONS = 20_000
HOST = "10.0.0.1"


def literal(number: int) -> Acl:
    return _acl(f"topic-{number}", PatternType.LITERAL, f"User:u{number % 100}")


def prefixed(number: int) -> Acl:
    """An ACL with a prefix of one of 8 lengths."""
    return _acl(f"topic-{number}."[: 6 + number % 8], PatternType.PREFIXED, f"User:u{number}")


def one_topic(number: int) -> Acl:
    return _acl("topic-1", PatternType.LITERAL, f"User:u{number}")


def _acl(name: str, pattern: int, principal: str) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, principal, "*", Operation.READ, Permission.ALLOW)


def authorizer_of(make: Callable[[int], Acl], count: int) -> AclAuthorizer:
    acls = Acls()
    for number, acl in enumerate(dict.fromkeys(map(make, range(count)))):
        acls.apply(record_of(number.to_bytes(16, "big"), acl))
    log = EventLog(io.StringIO())
    return AclAuthorizer(acls, "", False, Audit(log, time.monotonic), log)


def questions(count: int) -> Iterator[tuple[Principal, str, object, str]]:
    """The questions of a hundred clients, each about a hundred topics."""
    who = [Principal("User", f"u{number}") for number in range(100)]
    for number in cycle(range(min(count, 10_000))):
        yield who[number % 100], HOST, READ_TOPIC if number % 3 else WRITE_TOPIC, f"topic-{number}"


def timed(authorizer: AclAuthorizer, count: int, *, remembered: bool, rounds: int) -> float:
    """The microseconds of a decision. Denials write no log line."""
    asked = [each for each, _ in zip(questions(count), range(QUESTIONS), strict=False)]
    found = []
    for _ in range(rounds):
        if not remembered:
            authorizer._decisions.clear()
            asked = asked[: min(count, 10_000)]
        began = time.process_time()
        for principal, host, right, name in asked:
            authorizer.allows(principal, host, right, name, quiet=True)  # type: ignore[arg-type]
        found.append((time.process_time() - began) / len(asked) * 1e6)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--acls", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    rows = []
    for name, make in (("a topic each", literal), ("prefixes of 8 lengths", prefixed), ("one topic", one_topic)):
        authorizer = authorizer_of(make, args.acls)
        fresh = timed(authorizer, args.acls, remembered=False, rounds=args.rounds)
        again = timed(authorizer, args.acls, remembered=True, rounds=args.rounds)
        began = time.process_time()
        authorizer._acls.version += 1
        authorizer.allows_any(Principal("User", "u1"), HOST, WRITE_TOPIC)
        rows.append((name, f"{fresh:.2f}", f"{again:.2f}", f"{(time.process_time() - began) * 1e6:.0f}"))
    print(f"{args.acls} ACLs, microseconds of CPU")
    print(table(("ACLS", "MADE", "REMEMBERED", "ANY TOPIC"), rows))


if __name__ == "__main__":
    main()
