"""Who sends a request over HTTP, and whether a page of another site made the browser send it.

- The Host header must be an address, `localhost`, or a name in `barnabas.http.hosts`. This stops DNS rebinding, where a
  page of another site has a name that points to this machine.
- A change must have the visitor's token in `x-csrf-token`, which a page of another site cannot read. If there is an
  Origin header, it must be this site's.
- If clients have to log in, so do visitors: programs with HTTP Basic, people with a form, which sets a cookie. A
session
  ends when its password changes, after a day, when there are too many sessions, and with the broker.

Source: RFC 7617 (Basic), RFC 6265 (cookies), the Fetch standard (Origin).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import urlsplit

import trio

from barnabas.broker.http.messages import Refused, Visitor
from barnabas.broker.http.passwords import Passwords, Proof
from barnabas.broker.http.server import Head
from barnabas.broker.security.audit import Audit
from barnabas.broker.security.principals import ANONYMOUS
from barnabas.broker.settings.config import BrokerConfig

COOKIE = "barnabas-session"
MOST_SESSIONS = 1000
SESSION_SECONDS = 24 * 3600.0
CSRF_HEADER = "x-csrf-token"
#: The mechanism and the listener of HTTP logins in the log of logins.
MECHANISM, LISTENER = "HTTP", "HTTP"


class Session(NamedTuple):
    """A login with the form. `since` is in seconds of trio's clock."""

    proof: Proof
    csrf: str
    since: float


class Visitors:
    """Finds out who sends a request, from its head."""

    def __init__(self, config: BrokerConfig, passwords: Passwords, audit: Audit) -> None:
        self._config, self._passwords, self._audit = config, passwords, audit
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # the last used one is last
        #: The token of visitors without a session.
        self._csrf = secrets.token_urlsafe(24)

    @property
    def log_in(self) -> bool:
        """Whether visitors have to log in."""
        return self._passwords.are_asked_for

    def check_site(self, head: Head) -> None:
        """Raises Refused if the Host is not this site's, or if the page of another site asks for a change or for data.

        Such a page cannot read the answer, but a search, for instance, costs the broker a process. Links of other pages
        to the console work. Source: Fetch Metadata Request Headers (W3C).
        """
        host = head.headers.get("host", "")
        if not self._is_mine(host):
            why = f"unknown host {host[:200] or '(no name)'}: add it to barnabas.http.hosts if it is this site"
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, why)
        if head.method in ("GET", "HEAD"):
            if head.path.startswith("/api/") and head.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
                raise Refused(HTTPStatus.FORBIDDEN, "the request comes from a page of another site")
            return
        origin = head.headers.get("origin")
        mine = f"{'https' if head.is_encrypted else 'http'}://{host}"
        if origin is not None and origin != mine and not self._is_proxied(origin, host):
            raise Refused(HTTPStatus.FORBIDDEN, "the request comes from a page of another site")

    def _is_proxied(self, origin: str, host: str) -> bool:
        """Whether a trusted proxy ends TLS before this listener. Then only the scheme differs."""
        return bool(self._config["barnabas.http.trusted.network"]) and origin == f"https://{host}"

    def _is_mine(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name == "localhost" or name in (each.lower() for each in self._config["barnabas.http.hosts"]):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    async def of(self, head: Head) -> Visitor | None:
        """The visitor; None if it must log in first. Raises Refused for a wrong password."""
        if not self.log_in:
            return Visitor(ANONYMOUS, head.host, self._csrf)
        session = self._session(head)
        if session is not None:
            return Visitor(session.proof.principal, head.host, session.csrf)
        kind, _, given = head.headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise Refused(HTTPStatus.UNAUTHORIZED, "the header Authorization is not valid for Basic") from None
        proof = await self._checked(head, name, password)
        return Visitor(proof.principal, head.host, self._csrf)

    async def begin(self, head_host: str, name: str, password: str, *, is_encrypted: bool) -> tuple[Session, str]:
        """Log in. Returns the session, and the Set-Cookie header for the browser. Raises Refused."""
        proof = await self._checked_at(head_host, name, password)
        token = secrets.token_urlsafe(32)
        session = self._sessions[token] = Session(proof, secrets.token_urlsafe(24), trio.current_time())
        self._audit.logged_in(proof.principal, MECHANISM, head_host, LISTENER, is_new=True)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        secure = "; Secure" if is_encrypted else ""
        return session, f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def end(self, headers_cookie: str) -> str:
        """Log out. Returns the Set-Cookie header that deletes the cookie."""
        self._sessions.pop(_token(headers_cookie), None)
        return f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"

    @staticmethod
    def check_token(given: str, visitor: Visitor) -> None:
        """Raises Refused for a change without the visitor's token."""
        if not hmac.compare_digest(given.encode(), visitor.csrf.encode()):
            raise Refused(HTTPStatus.FORBIDDEN, f"a change needs the token of /api/session in the header {CSRF_HEADER}")

    async def _checked(self, head: Head, name: str, password: str) -> Proof:
        return await self._checked_at(head.host, name, password)

    async def _checked_at(self, host: str, name: str, password: str) -> Proof:
        proof = await self._passwords.check(host, name, password)
        if proof is None:
            self._audit.not_let_in(name, MECHANISM, host, LISTENER, "wrong name or password")
            await trio.sleep(self._config["connection.failed.authentication.delay.ms"] / 1000)
            raise Refused(HTTPStatus.UNAUTHORIZED, "wrong name or password")
        return proof

    def _session(self, head: Head) -> Session | None:
        token = _token(head.headers.get("cookie", ""))
        session = self._sessions.get(token)
        if session is None:
            return None
        if trio.current_time() - session.since > SESSION_SECONDS or not self._passwords.holds(session.proof):
            del self._sessions[token]
            return None
        self._sessions.move_to_end(token)
        return session


def _token(cookie: str) -> str:
    """The session's token in a Cookie header; empty if there is none."""
    try:
        found = SimpleCookie(cookie).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value
