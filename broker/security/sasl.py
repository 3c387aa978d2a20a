"""The SASL login of one connection: which requests are accepted in which state. No I/O, and no clock.

    state      what comes                                                       goes to
    HANDSHAKE  ApiVersions; SaslHandshake with a mechanism that is served       HANDSHAKE; EXCHANGE
    EXCHANGE   SaslAuthenticate (after SaslHandshake 0: bare tokens), until     KNOWN
               the mechanism knows who the client is
    KNOWN      any request, until the session is over; then only                KNOWN
               SaslHandshake, with the same mechanism: a new login              EXCHANGE
    FAILED     nothing: the connection ends when the client has its answer

Any other request ends the connection. A later login must be by the same principal; during this login, the client keeps
its principal.

Source: KIP-12, KIP-43 (mechanisms), KIP-152 (SaslAuthenticate), KIP-368 (re-authentication).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

import trio

from barnabas.broker.security.principals import ANONYMOUS, Principal

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
#: The least time between two logins of a connection.
LEAST_SECONDS_BETWEEN = 1.0


class AuthenticationFailed(Exception):
    """The client could not prove who it is. The text is for the client, and reveals nothing that it should not know.

    `who` is the name that it gave, for the log.
    """

    def __init__(self, message: str, who: str = "") -> None:
        super().__init__(message)
        self.who = who


class NotYet(Exception):
    """The client's message cannot be judged before an event; pass it again after that."""

    def __init__(self, happens: trio.Event) -> None:
        super().__init__("later")
        self.happens = happens


class Identified(NamedTuple):
    """The client's principal; when the proof expires, in ms since 1970; whether the proof was a token."""

    principal: Principal
    expires_ms: int | None = None
    by_token: bool = False


class Step(NamedTuple):
    """The answer to the client, and its identity once that is known."""

    answer: bytes
    identified: Identified | None = None


class Exchange(Protocol):
    """One login by one mechanism."""

    def step(self, data: bytes) -> Step:
        """Process a message of the client. Raises AuthenticationFailed; NotYet, which changes nothing."""


class State(Enum):
    HANDSHAKE = "handshake"
    EXCHANGE = "exchange"
    KNOWN = "known"
    FAILED = "failed"


class Mechanism(NamedTuple):
    """A mechanism of a listener: how a login begins, and how long it lasts (ms; 0: as long as its proof)."""

    begin: Callable[[], Exchange]
    max_session_ms: int = 0


class Answer(NamedTuple):
    """The answer of a step; the session's lifetime in ms (0: unlimited) if the client is known now."""

    data: bytes
    is_known: bool
    lifetime_ms: int = 0


class Login:
    """The state of a login. `now` is in seconds of any monotonic clock, `wall_ms` is the time of day."""

    __slots__ = (
        *("_began", "_ends", "_exchange", "_hidden", "_mechanisms"),
        *("by_token", "is_raw", "mechanism", "principal", "state"),
    )

    def __init__(self, mechanisms: Mapping[str, Mechanism], hidden: Mapping[str, Mechanism] | None = None) -> None:
        """`hidden` are mechanisms that are served but not listed."""
        self._mechanisms, self._hidden = mechanisms, hidden or {}
        self.state = State.HANDSHAKE
        #: Whether tokens are sent without a request around them.
        self.is_raw = False
        self.mechanism = ""
        self.principal = ANONYMOUS
        self.by_token = False
        self._exchange: Exchange | None = None
        self._ends: float | None = None
        self._began: float | None = None

    @property
    def served(self) -> list[str]:
        """The names of the mechanisms."""
        return list(self._mechanisms)

    @property
    def is_new(self) -> bool:
        """Whether the client has not logged in before."""
        return self.principal is ANONYMOUS

    def _find(self, mechanism: str) -> Mechanism | None:
        return self._mechanisms.get(mechanism) or self._hidden.get(mechanism)

    def admits(self, key: int, now: float) -> bool:
        """Whether a request may be handled: not those of a stranger, nor those after the end of the session."""
        if self.state is State.KNOWN:
            return self._ends is None or now <= self._ends or key == SASL_HANDSHAKE
        if self.state is State.HANDSHAKE:
            return key in (API_VERSIONS, SASL_HANDSHAKE)
        return self.state is State.EXCHANGE and key == SASL_AUTHENTICATE

    @property
    def lacks(self) -> str:
        """The reason why a request is not admitted, for the log."""
        return "has to log in again" if self.state is State.KNOWN else "has not logged in"

    def may_begin(self, now: float) -> bool:
        """Whether SaslHandshake begins a login. A later login begins only if sessions expire, and not too soon."""
        if self.state is State.KNOWN:
            return self._ends is not None and (self._began is None or now - self._began >= LEAST_SECONDS_BETWEEN)
        return self.state is State.HANDSHAKE

    def begin(self, mechanism: str, now: float, *, raw: bool) -> bool:
        """Begin a login by the mechanism that the client named; False if it is not served, which ends the login."""
        chosen = self._find(mechanism)
        if chosen is None:
            self.state = State.FAILED
            return False
        if self.state is State.KNOWN:
            self._began = now
            if mechanism != self.mechanism:
                self.state = State.FAILED
                return False
        self.mechanism, self.is_raw = mechanism, raw
        self._exchange = chosen.begin()
        self.state = State.EXCHANGE
        return True

    def step(self, data: bytes, now: float, wall_ms: int) -> Answer:
        """Process a message. Raises AuthenticationFailed, which ends the login; NotYet, which changes nothing."""
        assert self.state is State.EXCHANGE
        assert self._exchange is not None
        try:
            answer, identified = self._exchange.step(data)
            if identified is not None and not self.is_new and identified.principal != self.principal:
                before, after = (f"{each.type}.{each.name}" for each in (self.principal, identified.principal))
                message = f"Cannot change principals during re-authentication from {before}: {after}"
                raise AuthenticationFailed(message, identified.principal.name)
        except AuthenticationFailed:
            self.fail()
            raise
        if identified is None:
            return Answer(answer, False)
        self.principal, self.by_token = identified.principal, identified.by_token
        self.state, self._exchange, self.is_raw = State.KNOWN, None, False
        lifetime = self._lifetime(identified, wall_ms)
        self._ends = None if lifetime is None else now + lifetime / 1000
        return Answer(answer, True, lifetime or 0)

    def fail(self) -> None:
        """End the login as failed."""
        self.state, self._exchange = State.FAILED, None

    def _lifetime(self, identified: Identified, wall_ms: int) -> int | None:
        """The session's lifetime in ms; None if it does not end."""
        chosen = self._find(self.mechanism)
        longest = 0 if chosen is None else chosen.max_session_ms
        bounds = [longest] if longest > 0 else []
        if identified.expires_ms is not None:
            bounds.append(max(0, identified.expires_ms - wall_ms))
        return min(bounds) if bounds else None
