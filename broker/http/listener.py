"""The HTTP listener of a broker: its socket, and the handler of each path.

/healthz   the event loop runs                                     everybody
/readyz    clients of Kafka's protocol are served, and can write   everybody
/metrics   the metrics of this node; with ?nodes=all, of all       who may describe the cluster
/api/trace requests as they arrive, one on each line               who may describe the cluster
/api/...   sessions; all others belong to the console              who has logged in, if clients have to
/console/  the console's page, without any data of the broker      everybody

It listens from the beginning of a start. During a recovery, `/readyz` reports that. Without TLS and logins, it listens
only on the machine itself, unless the operator declares the network to be trusted.
"""

from __future__ import annotations

import importlib
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import trio

from barnabas.broker.between.peers import Peers
from barnabas.broker.http.messages import TEXT, Refused, Request, Response, Visitor, json_answer, refusal
from barnabas.broker.http.metrics_of_nodes import MetricsOfNodes
from barnabas.broker.http.passwords import Passwords
from barnabas.broker.http.routing import Routing
from barnabas.broker.http.server import Head, Server
from barnabas.broker.http.visitors import CSRF_HEADER, Visitors
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metrics.exposition import Metrics
from barnabas.broker.metrics.trace import Filter
from barnabas.broker.net import listening
from barnabas.broker.parts import Parts
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.operations import DESCRIBE_CLUSTER
from barnabas.broker.security.principals import ANONYMOUS
from barnabas.broker.security.tls import TlsListeners
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.settings.listeners import Listener
from barnabas.wire.acls import CLUSTER_NAME

#: Paths that reveal nothing about the broker.
OPEN = ("/healthz", "/readyz", "/console/", "/api/session", "/api/login")


class HttpListener:
    """Call `bind` to bind the port, `run` to serve, and `ready` when the broker serves."""

    def __init__(self, config: BrokerConfig, log: EventLog, tls: TlsListeners, metrics: Metrics) -> None:
        self._config, self._log, self._tls, self._metrics = config, log, tls, metrics
        assert config.http is not None
        self.listener: Listener = config.http
        self._server = Server(self, log)
        self._visitors: Visitors | None = None
        self._console: Any = None
        self._sockets: list[socket.socket] = []
        self._authorizer: Authorizer | None = None
        #: Why clients are not served yet; empty when they are.
        self.missing = "the broker starts"

    # --- life ---------------------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Bind the port. Raises ConfigError if it is in use, or if strangers could connect."""
        self._check_reach()
        self._sockets = listening.bind_one(self.listener, self._config)
        self.port: int = self._sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        """The URL for a browser on this machine."""
        host = self.listener.host
        shown = "localhost" if host in ("", "::", "0.0.0.0") else f"[{host}]" if ":" in host else host
        return f"{'https' if self.listener.protocol.is_encrypted else 'http'}://{shown}:{self.port}/"

    def close(self) -> None:
        """Release the port."""
        for sock in self._sockets:
            sock.close()

    def _check_reach(self) -> None:
        if _is_loopback(self.listener.host) or self._config["barnabas.http.trusted.network"]:
            return
        here = f"barnabas.http.listen={self.listener.host}:{self.listener.port} can be reached by others"
        allow = "or set barnabas.http.trusted.network=true if everybody who can reach it may use it"
        if not self.listener.protocol.is_encrypted:
            raise ConfigError(f"{here} without TLS: write https://HOST:PORT, listen on 127.0.0.1, {allow}")
        if not any(each.protocol.has_sasl for each in self._config.listeners):
            raise ConfigError(f"{here} without a login: give a listener SASL, listen on 127.0.0.1, {allow}")

    async def run(self, nursery: trio.Nursery) -> None:
        """Accept connections in tasks of `nursery`, until cancelled."""
        for sock in self._sockets:
            sock.listen(64)
            nursery.start_soon(self._accept, trio.SocketListener(trio.socket.from_stdlib_socket(sock)), nursery)

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError:  # too many open files: there is no event for a free descriptor
                await trio.sleep(0.1)
                continue
            nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        context: ssl.SSLContext | None = None
        if self.listener.protocol.is_encrypted:
            if self.missing:  # the certificates are read together with the metadata
                await trio.aclose_forcefully(stream)
                return
            context = self._tls.terms(self.listener.name).context
        await self._server.serve(stream, context)

    def ready(self, parts: Parts, authorizer: Authorizer | None, peers: Peers | None) -> None:
        """Called when the broker serves: its parts exist, and the other nodes, if any."""
        self._authorizer = authorizer
        parts.make(Routing).peers = peers
        self._of_nodes = MetricsOfNodes(parts.find(MetadataImage), self._metrics, peers)
        parts.make(Passwords)
        self._visitors = parts.make(Visitors)
        self._console = _console(parts)
        self.missing = ""

    def recovering(self, done: int, total: int) -> None:
        """Note how far the recovery is."""
        self.missing = f"recovering: {done} of {total} partitions"

    # --- answers ------------------------------------------------------------------------------------------------------

    async def admit(self, head: Head) -> Visitor:
        """The visitor who sends a request. Raises Refused."""
        visitors = self._visitors
        if visitors is None:
            if head.path in ("/healthz", "/readyz"):
                return Visitor(ANONYMOUS, head.host, "")
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, self.missing)
        visitors.check_site(head)
        visitor = await visitors.of(head)
        is_open = head.path in OPEN or head.path in ("/", "/console") or head.path.startswith("/console/")
        if visitor is None and not is_open:
            asks = [("WWW-Authenticate", 'Basic realm="barnabas", charset="UTF-8"')] if head.path == "/metrics" else []
            raise Refused(HTTPStatus.UNAUTHORIZED, "log in first", asks)
        if head.method not in ("GET", "HEAD") and head.path != "/api/login":
            if visitor is None:
                raise Refused(HTTPStatus.UNAUTHORIZED, "log in first")
            visitors.check_token(head.headers.get(CSRF_HEADER, ""), visitor)
        return visitor or Visitor(ANONYMOUS, head.host, "")

    async def answer(self, request: Request) -> Response:
        """The answer to a request. Raises Refused."""
        known: dict[tuple[str, str], Callable[[Request], Any]] = {
            ("GET", "/healthz"): self._health,
            ("GET", "/readyz"): self._readiness,
            ("GET", "/metrics"): self._metrics_text,
            ("GET", "/api/session"): self._session,
            ("GET", "/api/trace"): self._trace,
            ("POST", "/api/login"): self._log_in,
            ("POST", "/api/logout"): self._log_out,
        }
        method = "GET" if request.method == "HEAD" else request.method
        answer = known.get((method, request.path))
        if answer is not None:
            return await answer(request)  # type: ignore[no-any-return]
        if request.path in ("/", "/console") and self._console is not None:
            return Response(HTTPStatus.FOUND, b"", TEXT, [("Location", "/console/")])
        found = None if self._console is None else await self._console.answer(request)
        return refusal(404, f"there is no {request.method} {request.path[:200]}") if found is None else found

    async def _health(self, request: Request) -> Response:
        return Response(200, b"ok\n", TEXT)

    async def _readiness(self, request: Request) -> Response:
        problem = self.missing or await trio.to_thread.run_sync(_cannot_write, self._config.data_dir)
        return Response(503, f"{problem}\n".encode(), TEXT) if problem else Response(200, b"ready\n", TEXT)

    async def _trace(self, request: Request) -> Response:
        """Requests as they arrive, one on each line, until the visitor leaves."""
        self._check_may_describe(request)
        traces = self._metrics.requests.traces
        if traces.is_full:
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, "too many traces are running: end another one first")
        wanted = Filter(**{name: request.query.get(name, "") for name in Filter.__struct_fields__})
        return Response(200, traces.watch(wanted), "application/x-ndjson")

    def _check_may_describe(self, request: Request) -> None:
        """Raises Refused if the visitor may not describe the cluster."""
        authorizer, who = self._authorizer, request.who
        if authorizer is not None and not authorizer.allows(
            who.principal, who.host, DESCRIBE_CLUSTER, CLUSTER_NAME, api="Metrics"
        ):
            raise Refused(HTTPStatus.FORBIDDEN, f"{who.principal} may not describe the cluster")

    async def _metrics_text(self, request: Request) -> Response:
        """Of this node; with `?nodes=all` of all nodes, each series with the label `node`."""
        self._check_may_describe(request)
        wanted = request.query.get("nodes", "")
        if wanted not in ("", "all"):
            raise Refused(HTTPStatus.BAD_REQUEST, "nodes=all is for the metrics of all nodes; without it, of this one")
        source = self._of_nodes if wanted else self._metrics
        try:
            text, content_type = await source.render(request.headers.get("accept", ""))
        except OSError as error:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
        return Response(200, text, content_type)

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def _session(self, request: Request) -> Response:
        """The visitor, and the token for changes. `csrf` is empty for a visitor who must log in first."""
        assert self._visitors is not None
        told = {"principal": str(request.who.principal), "csrf": request.who.csrf, "log_in": self._visitors.log_in}
        return json_answer(told)

    async def _log_in(self, request: Request) -> Response:
        assert self._visitors is not None
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a login is JSON: name and password")
        try:
            given = msgspec.json.decode(request.body, type=_Login)
        except msgspec.DecodeError:
            raise Refused(HTTPStatus.BAD_REQUEST, "a login is JSON: name and password") from None
        session, cookie = await self._visitors.begin(
            request.who.host, given.name, given.password, is_encrypted=self.listener.protocol.is_encrypted
        )
        told = {"principal": str(session.proof.principal), "csrf": session.csrf, "log_in": True}
        return json_answer(told, headers=[("Set-Cookie", cookie)])

    async def _log_out(self, request: Request) -> Response:
        assert self._visitors is not None
        return json_answer({}, headers=[("Set-Cookie", self._visitors.end(request.headers.get("cookie", "")))])


class _Login(msgspec.Struct):
    name: str
    password: str


def _console(parts: Parts) -> Any:
    """The console, if it is installed."""
    try:
        console = importlib.import_module("barnabas.broker.http.console")
    except ModuleNotFoundError:
        return None
    return parts.make(console.Console)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _cannot_write(folder: Path) -> str:
    """Why the data directory cannot be written; empty if it can. For a thread."""
    try:
        if not os.access(folder, os.W_OK):
            return f"the data directory {folder} cannot be written"
        if os.statvfs(folder).f_bavail == 0:
            return f"the disk of the data directory {folder} is full"
    except OSError as error:
        return f"the data directory {folder}: {error.strerror}"
    return ""
