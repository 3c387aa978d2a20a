"""ACLs, indexed for the question of each request: may this principal, from this host, do that to this resource?

kind of resource -> principal -> pattern (a name, or a prefix) -> host -> two sets of operations, as bits

A look-up checks the pattern of the name, `*`, and each prefix of the name whose length occurs among the principal's
prefixes; the number of ACLs does not matter. The bits include what an ACL implies. A deny of any pattern beats every
allow.

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
    """The part of an ACL that the index uses."""

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
    """The operations that one principal may, and must not, do from one host by one pattern."""

    allowed: int
    denied: int


@lru_cache(maxsize=4096)
def same_form(host: str) -> str:
    """An address in the form in which addresses are compared; a text that is not an address stays unchanged.

    An IPv6 address has many forms, and an IPv4 client of an IPv6 socket has an IPv6 address.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def bits_of(entries: Iterable[tuple[int, bool]]) -> Bits:
    """The bits of the (operation, allows) pairs of one principal and host."""
    allowed = denied = 0
    for operation, allows in entries:
        bits = _ALL_BITS if operation == Operation.ALL else 1 << operation
        if not allows:
            denied |= bits
        else:
            implied = _IMPLIED.get(operation)  # type: ignore[call-overload]
            allowed |= bits if implied is None else bits | 1 << implied
    return Bits(allowed, denied)


class _Grants:
    """The ACLs of one principal for one kind of resource."""

    __slots__ = ("_entries", "lengths", "names", "prefixes")

    def __init__(self) -> None:
        #: By name, and by prefix: the bits for each host.
        self.names: dict[str, dict[str, Bits]] = {}
        self.prefixes: dict[str, dict[str, Bits]] = {}
        #: The lengths of its prefixes.
        self.lengths = _Lengths()
        # Two ACLs may differ only in the form of the host, so each is counted.
        self._entries: dict[tuple[bool, str, str], Counter[tuple[int, bool]]] = {}

    def add(self, acl: Entry) -> None:
        host, by_name = same_form(acl.host), self.prefixes if acl.is_prefix else self.names
        if acl.name not in by_name and acl.is_prefix:
            self.lengths.add(acl.name)
        entries = self._entries.setdefault((acl.is_prefix, acl.name, host), Counter())
        entries[acl.operation, acl.allows] += 1
        by_name.setdefault(acl.name, {})[host] = bits_of(entries)

    def remove(self, acl: Entry) -> None:
        host, by_name = same_form(acl.host), self.prefixes if acl.is_prefix else self.names
        entries, entry = self._entries[acl.is_prefix, acl.name, host], (acl.operation, acl.allows)
        entries[entry] -= 1
        if not entries[entry]:
            del entries[entry]
        if entries:
            by_name[acl.name][host] = bits_of(entries)
            return
        del self._entries[acl.is_prefix, acl.name, host], by_name[acl.name][host]
        if not by_name[acl.name]:
            del by_name[acl.name]
            if acl.is_prefix:
                self.lengths.remove(acl.name)


class _Lengths:
    """The lengths of some prefixes."""

    __slots__ = ("_counts", "all")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        #: Each of them once, the shortest first.
        self.all: tuple[int, ...] = ()

    def add(self, prefix: str) -> None:
        self._counts[len(prefix)] += 1
        self.all = tuple(sorted(self._counts))

    def remove(self, prefix: str) -> None:
        self._counts[len(prefix)] -= 1
        if not self._counts[len(prefix)]:
            del self._counts[len(prefix)]
        self.all = tuple(sorted(self._counts))


class _OfType:
    """The ACLs of one kind of resource."""

    __slots__ = ("_lengths", "_patterns", "grants")

    def __init__(self) -> None:
        self.grants: dict[Principal, _Grants] = {}
        # How many ACLs there are by (is a prefix, name), and the lengths of the prefixes.
        self._patterns: Counter[tuple[bool, str]] = Counter()
        self._lengths = _Lengths()

    def add(self, acl: Entry) -> None:
        principal, pattern = parse_principal(acl.principal), (acl.is_prefix, acl.name)
        grants = self.grants.get(principal)
        if grants is None:
            grants = self.grants[principal] = _Grants()
        grants.add(acl)
        self._patterns[pattern] += 1
        if acl.is_prefix and self._patterns[pattern] == 1:
            self._lengths.add(acl.name)

    def remove(self, acl: Entry) -> None:
        principal, pattern = parse_principal(acl.principal), (acl.is_prefix, acl.name)
        grants = self.grants[principal]
        grants.remove(acl)
        if not grants.names and not grants.prefixes:
            del self.grants[principal]
        self._patterns[pattern] -= 1
        if not self._patterns[pattern]:
            del self._patterns[pattern]
            if acl.is_prefix:
                self._lengths.remove(acl.name)

    def has_any(self, name: str) -> bool:
        """Whether a resource has an ACL at all, whoever it is for."""
        patterns = self._patterns
        return (
            (False, name) in patterns
            or (False, WILDCARD) in patterns
            or any((True, name[:length]) in patterns for length in self._lengths.all if length <= len(name))
        )


class AclIndex:
    """All ACLs. `add` must be called with a new ACL, `remove` with a present one."""

    def __init__(self) -> None:
        self._types: dict[int, _OfType] = {}

    def add(self, acl: Entry) -> None:
        """Add an ACL. Raises ValueError if it has no principal or no operation."""
        parse_principal(acl.principal)
        if not acl.operation >= Operation.ALL:
            raise ValueError(f"operation {acl.operation}")
        of_type = self._types.get(acl.type)
        if of_type is None:
            of_type = self._types[acl.type] = _OfType()
        of_type.add(acl)

    def remove(self, acl: Entry) -> None:
        self._types[acl.type].remove(acl)

    def decide(self, principal: Principal, host: str, operation: int, kind: int, name: str) -> bool:
        """Whether the ACLs of a resource allow an operation. `host` is in the form of `same_form`."""
        of_type = self._types.get(kind)
        if of_type is None:
            return False
        allowed, bit, size = False, 1 << operation, len(name)
        for who in (principal, EVERYBODY):
            grants = of_type.grants.get(who)
            if grants is None:
                continue
            names, prefixes = grants.names, grants.prefixes
            met = [names.get(name), names.get(WILDCARD)]
            if prefixes:
                met += [prefixes.get(name[:length]) for length in grants.lengths.all if length <= size]
            for by_host in met:
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

    def has_any(self, kind: int, name: str) -> bool:
        """Whether a resource has an ACL at all, whoever it is for."""
        of_type = self._types.get(kind)
        return of_type is not None and of_type.has_any(name)

    def decide_any(self, principal: Principal, host: str, operation: int, kind: int) -> bool:
        """Whether a principal may do an operation on any resource of a kind, by the patterns of the ACLs.

        An allowed name or prefix counts unless a deny covers it: a deny of everything, of the same name, or of a prefix
        of it.
        """
        of_type = self._types.get(kind)
        if of_type is None:
            return False
        allowed: list[tuple[bool, str]] = []
        denied: set[tuple[bool, str]] = set()
        bit = 1 << operation
        for who in {principal, EVERYBODY}:
            grants = of_type.grants.get(who)
            for is_prefix, by_name in () if grants is None else ((False, grants.names), (True, grants.prefixes)):
                for name, by_host in by_name.items():
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
    """Whether a denied prefix covers a name."""
    return any((True, name[:length]) in denied for length in lengths if length <= len(name))
