"""ACLs, arranged for the one question that each request asks: may this principal do this, from this host, to that?

kind of resource -> pattern (a name, or a prefix) -> principal -> host -> two sets of operations, as bits

A question looks at the pattern of the name, at `*`, and at each prefix of the name whose length some prefix has: the
number of ACLs plays no part. What an ACL implies is in its bits already. A deny beats every allow, of any pattern.

Source: KIP-11, KIP-290. To read, write, delete or alter implies to describe; to alter a configuration implies to
describe it. A deny implies nothing.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, Protocol

from barnabas.broker.security.principals import EVERYBODY, Principal, parse_principal
from barnabas.wire.acls import WILDCARD, Operation

_ALL_BITS = -1
_IMPLIED = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}


class Entry(Protocol):
    """What the index wants to know of an ACL."""

    @property
    def type(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def is_prefix(self) -> bool: ...
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def allows(self) -> bool: ...


class Bits(NamedTuple):
    """What one principal may do from one host, and what it must not, by one pattern."""

    allowed: int
    denied: int


@lru_cache(maxsize=4096)
def same_form(host: str) -> str:
    """An address in the one form in which addresses are compared; what is no address stays as it is.

    One address has many forms in IPv6, and an IPv4 client of an IPv6 socket has an IPv6 one.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def bits_of(entries: Iterable[tuple[int, bool]]) -> Bits:
    """What (operation, allows) of one principal and host come to."""
    allowed = denied = 0
    for operation, allows in entries:
        bits = _ALL_BITS if operation == Operation.ALL else 1 << operation
        if not allows:
            denied |= bits
        else:
            implied = _IMPLIED.get(operation)  # type: ignore[call-overload]
            allowed |= bits if implied is None else bits | 1 << implied
    return Bits(allowed, denied)


class _Pattern:
    """The ACLs of one name, or of one prefix."""

    __slots__ = ("_entries", "bits")

    def __init__(self) -> None:
        self.bits: dict[Principal, dict[str, Bits]] = {}
        # Two ACLs may differ in the form of the host only, so each is counted.
        self._entries: dict[tuple[Principal, str], Counter[tuple[int, bool]]] = {}

    def add(self, principal: Principal, host: str, entry: tuple[int, bool]) -> None:
        entries = self._entries.setdefault((principal, host), Counter())
        entries[entry] += 1
        self.bits.setdefault(principal, {})[host] = bits_of(entries)

    def remove(self, principal: Principal, host: str, entry: tuple[int, bool]) -> None:
        entries = self._entries[principal, host]
        entries[entry] -= 1
        if not entries[entry]:
            del entries[entry]
        if entries:
            self.bits[principal][host] = bits_of(entries)
            return
        del self._entries[principal, host], self.bits[principal][host]
        if not self.bits[principal]:
            del self.bits[principal]


class _OfType:
    """The ACLs of one kind of resource."""

    __slots__ = ("_lengths", "lengths", "names", "patterns_of", "prefixes")

    def __init__(self) -> None:
        self.names: dict[str, _Pattern] = {}
        self.prefixes: dict[str, _Pattern] = {}
        #: The lengths that prefixes have, the shortest first.
        self.lengths: tuple[int, ...] = ()
        self._lengths: Counter[int] = Counter()
        #: In which patterns, by (is a prefix, name), a principal stands.
        self.patterns_of: dict[Principal, dict[tuple[bool, str], None]] = {}

    def add(self, acl: Entry) -> None:
        principal, host = parse_principal(acl.principal), same_form(acl.host)
        patterns = self.prefixes if acl.is_prefix else self.names
        pattern = patterns.get(acl.name)
        if pattern is None:
            pattern = patterns[acl.name] = _Pattern()
            if acl.is_prefix:
                self._count(len(acl.name), 1)
        pattern.add(principal, host, (acl.operation, acl.allows))
        self.patterns_of.setdefault(principal, {})[acl.is_prefix, acl.name] = None

    def remove(self, acl: Entry) -> None:
        principal, host = parse_principal(acl.principal), same_form(acl.host)
        patterns = self.prefixes if acl.is_prefix else self.names
        pattern = patterns[acl.name]
        pattern.remove(principal, host, (acl.operation, acl.allows))
        if principal not in pattern.bits:
            del self.patterns_of[principal][acl.is_prefix, acl.name]
            if not self.patterns_of[principal]:
                del self.patterns_of[principal]
        if not pattern.bits:
            del patterns[acl.name]
            if acl.is_prefix:
                self._count(len(acl.name), -1)

    def _count(self, length: int, change: int) -> None:
        self._lengths[length] += change
        if not self._lengths[length]:
            del self._lengths[length]
        if len(self._lengths) != len(self.lengths):
            self.lengths = tuple(sorted(self._lengths))


class AclIndex:
    """All ACLs. `add` and `remove` are called with ACLs that are not there yet, and that are there."""

    def __init__(self) -> None:
        self._types: dict[int, _OfType] = {}

    def add(self, acl: Entry) -> None:
        """Raises ValueError for an ACL of nobody, or of no operation."""
        parse_principal(acl.principal)
        if not acl.operation >= Operation.ALL:
            raise ValueError(f"operation {acl.operation}")
        of_type = self._types.get(acl.type)
        if of_type is None:
            of_type = self._types[acl.type] = _OfType()
        of_type.add(acl)

    def remove(self, acl: Entry) -> None:
        self._types[acl.type].remove(acl)

    def decide(self, principal: Principal, host: str, operation: int, kind: int, name: str) -> bool | None:
        """Whether the ACLs of a resource allow an operation; None if the resource has no ACL at all.

        `host` is in the form of `same_form`.
        """
        of_type = self._types.get(kind)
        if of_type is None:
            return None
        names = of_type.names
        patterns = [names.get(name)]
        if name != WILDCARD:
            patterns.append(names.get(WILDCARD))
        if of_type.lengths:
            size, prefixes = len(name), of_type.prefixes
            patterns += [prefixes.get(name[:length]) for length in of_type.lengths if length <= size]
        bit = 1 << operation
        allowed: bool | None = None
        for pattern in patterns:
            if pattern is None:
                continue
            allowed = allowed or False
            for who in (principal, EVERYBODY):
                by_host = pattern.bits.get(who)
                if by_host is None:
                    continue
                for where in (host, WILDCARD):
                    found = by_host.get(where)
                    if found is not None:
                        if found.denied & bit:
                            return False
                        if found.allowed & bit:
                            allowed = True
        return allowed

    def decide_any(self, principal: Principal, host: str, operation: int, kind: int) -> bool:
        """Whether there is a resource of a kind that a principal may do something to, by the patterns of the ACLs.

        A name or prefix that is allowed counts unless a deny covers it: one of everything, of the same name, or of a
        prefix of it.
        """
        of_type = self._types.get(kind)
        if of_type is None:
            return False
        allowed: list[tuple[bool, str]] = []
        denied: set[tuple[bool, str]] = set()
        bit = 1 << operation
        for who in {principal, EVERYBODY}:
            for is_prefix, name in of_type.patterns_of.get(who, ()):
                by_host = (of_type.prefixes if is_prefix else of_type.names)[name].bits[who]
                found = [by_host[where] for where in (host, WILDCARD) if where in by_host]
                if any(each.denied & bit for each in found):
                    denied.add((is_prefix, name))
                if any(each.allowed & bit for each in found):
                    allowed.append((is_prefix, name))
        everything = (False, WILDCARD)
        if everything in denied:
            return False
        if everything in allowed:
            return True
        lengths = sorted({len(name) for is_prefix, name in denied if is_prefix})
        return any(
            not (pattern in denied and not pattern[0]) and not _is_covered(pattern[1], denied, lengths)
            for pattern in allowed
        )


def _is_covered(name: str, denied: set[tuple[bool, str]], lengths: list[int]) -> bool:
    """Whether a prefix that is denied covers a name."""
    return any((True, name[:length]) in denied for length in lengths if length <= len(name))
