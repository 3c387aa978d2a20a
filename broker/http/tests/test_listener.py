"""The HTTP listener: who may come in, what strangers can do to it, and what it answers."""

from __future__ import annotations

import contextlib
import errno
import json
import sys
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker.http import server
from barnabas.broker.http.tests.client import Browser, basic, browse
from barnabas.broker.node import Node
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.tests.conftest import Running, Start, until
from barnabas.broker.tests.tls_client import client_context
from barnabas.wire import scram
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from compat_tests.security.certificates import Authority

HTTP = {"barnabas.http.listen": "127.0.0.1:0"}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret" user_bob="other";'
#: A broker whose clients log in. The tests use its plain listener, too.
LOCKED = {
    **HTTP,
    "listeners": "PLAINTEXT://127.0.0.1:0,SAFE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SAFE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.safe.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "1",
}


async def browser(running: Running) -> Browser:
    assert running.node.http is not None
    return await browse(running.node.http.port)


async def log_in(page: Browser, name: str, password: str) -> tuple[dict[str, str], str]:
    """Log in. Returns the session's cookie as the browser sends it, and the token for changes."""
    body = json.dumps({"name": name, "password": password}).encode()
    got = await page.ask("POST", "/api/login", {"Content-Type": "application/json"}, body)
    assert got.status == 200, got
    cookie = got.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    return {"Cookie": cookie.partition(";")[0]}, got.json()["csrf"]


async def put_scram(running: Running, name: str, password: str) -> None:
    salt = b"salt" * 4
    salted = scram.salted_password("SCRAM-SHA-256", password, salt, 4096)
    upsert = ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=salt, salted_password=salted)
    async with await running.client() as client:
        answer = await client.ask(AlterUserScramCredentialsRequest(upsertions=[upsert]))
    assert answer.results[0].error_code == 0, answer


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_health_readiness_and_metrics(start: Start) -> None:
    async with start(more=HTTP) as running:
        page = await browser(running)
        assert (await page.ask("GET", "/healthz")).body == b"ok\n"
        assert (await page.ask("GET", "/readyz")).body == b"ready\n"
        got = await page.ask("GET", "/metrics")
        assert got.status == 200
        names = {family.name for family in text_string_to_metric_families(got.body.decode())}
        assert "barnabas_uptime_seconds" in names
        assert got.headers["content-security-policy"].startswith("default-src 'self'")
        head = await page.ask("HEAD", "/healthz")
        assert (head.status, head.body) == (200, b"")
        assert (await page.ask("GET", "/nothing")).status == 404
        for path in ("/", "/console"):
            got = await page.ask("GET", path)
            assert (got.status, got.headers["location"]) == (302, "/console/")
        assert (await page.ask("DELETE", "/healthz", {"x-csrf-token": await token(page)})).status == 404


async def token(page: Browser) -> str:
    csrf: str = (await page.ask("GET", "/api/session")).json()["csrf"]
    return csrf


async def test_it_says_what_is_missing_until_the_broker_serves(start: Start) -> None:
    async with start(more=HTTP) as running:
        page = await browser(running)
        http = running.node.http
        assert http is not None
        http.recovering(3, 7)
        got = await page.ask("GET", "/readyz")
        assert (got.status, got.body) == (503, b"recovering: 3 of 7 partitions\n")
        assert (await page.ask("GET", "/healthz")).status == 200


async def test_a_data_directory_that_takes_nothing_is_not_ready(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(more=HTTP) as running:
        page = await browser(running)
        monkeypatch.setattr("os.access", lambda *_: False)
        got = await page.ask("GET", "/readyz")
        assert got.status == 503
        assert b"cannot be written" in got.body


# --- who may come in --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "[", "127.0.0.1.evil.example:9644"])
async def test_another_name_for_this_machine_is_refused(start: Start, host: str) -> None:
    async with start(more=HTTP) as running:
        page = await browser(running)
        assert (await page.ask("GET", "/metrics", host=host)).status == 421
        assert (await page.ask("GET", "/api/session", host=host)).status == 421


async def test_a_page_of_another_site_gets_no_data_and_may_have_links_to_the_console(start: Start) -> None:
    async with start(more=HTTP) as running:
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            page = await browser(running)
            assert (await page.ask("GET", "/console/", {"Sec-Fetch-Site": site})).status == 200
            assert (await page.ask("GET", "/api/session", {"Sec-Fetch-Site": site})).status == status


async def test_names_that_the_operator_gives_are_this_site(start: Start) -> None:
    async with start(more={**HTTP, "barnabas.http.hosts": "broker.example"}) as running:
        page = await browser(running)
        for host in ("broker.example", "BROKER.example:9644", "localhost:1", "[::1]:9644", "10.0.0.1"):
            assert (await page.ask("GET", "/metrics", host=host)).status == 200, host


async def test_a_page_of_another_site_changes_nothing(start: Start) -> None:
    async with start(more=HTTP) as running:
        page = await browser(running)
        csrf = await token(page)
        for headers in ({}, {"x-csrf-token": "wrong"}, {"x-csrf-token": csrf, "Origin": "http://evil.example"}):
            got = await page.ask("POST", "/api/logout", headers)
            assert got.status == 403, headers
        mine = {"x-csrf-token": csrf, "Origin": f"http://{page.host}"}
        assert (await page.ask("POST", "/api/logout", mine)).status == 200


async def test_a_form_of_another_site_cannot_log_in(start: Start) -> None:
    async with start(more=LOCKED) as running:
        page = await browser(running)
        got = await page.ask(
            "POST", "/api/login", {"Content-Type": "text/plain"}, b'{"name":"ann","password":"secret"}'
        )
        assert got.status == 415
        headers = {"Content-Type": "application/json", "Origin": "http://evil.example"}
        got = await page.ask("POST", "/api/login", headers, b'{"name":"ann","password":"secret"}')
        assert got.status == 403


async def test_where_clients_log_in_visitors_do(start: Start) -> None:
    async with start(more=LOCKED) as running:
        await put_scram(running, "cleo", "scrammed")
        page = await browser(running)
        got = await page.ask("GET", "/metrics")
        assert got.status == 401
        assert got.headers["www-authenticate"].startswith("Basic ")
        assert (await page.ask("GET", "/readyz")).status == 200
        for name, password in (("ann", "secret"), ("cleo", "scrammed")):
            assert (await page.ask("GET", "/metrics", basic(name, password))).status == 200
        for name, password in (("ann", "scrammed"), ("cleo", "secret"), ("nobody", "x"), ("", ""), ("ann", "")):
            assert (await page.ask("GET", "/metrics", basic(name, password))).status == 401
        right = basic("ann", "secret")
        assert (await page.ask("GET", "/metrics", right, host="evil.example")).status == 421
        assert (await page.ask("GET", "/metrics", {"Authorization": "Basic %%%"})).status == 401
        assert (await page.ask("GET", "/metrics", {"Authorization": "Bearer x"})).status == 401
        assert "login.failed" in running.log


async def test_a_session_begins_with_the_form_and_ends_with_the_password(start: Start) -> None:
    async with start(more=LOCKED) as running:
        await put_scram(running, "cleo", "scrammed")
        page = await browser(running)
        told = (await page.ask("GET", "/api/session")).json()
        assert told == {"principal": "User:ANONYMOUS", "csrf": "", "log_in": True}
        body = b'{"name":"cleo","password":"wrong"}'
        assert (await page.ask("POST", "/api/login", {"Content-Type": "application/json"}, body)).status == 401
        cookie, csrf = await log_in(page, "cleo", "scrammed")
        told = (await page.ask("GET", "/api/session", cookie)).json()
        assert told == {"principal": "User:cleo", "csrf": csrf, "log_in": True}
        assert (await page.ask("GET", "/metrics", cookie)).status == 200
        removal = ScramCredentialDeletion(name="cleo", mechanism=1)
        async with await running.client() as client:
            await client.ask(AlterUserScramCredentialsRequest(deletions=[removal]))
        assert (await page.ask("GET", "/metrics", cookie)).status == 401


async def test_who_logs_out_is_out(start: Start) -> None:
    async with start(more=LOCKED) as running:
        page = await browser(running)
        cookie, csrf = await log_in(page, "ann", "secret")
        assert (await page.ask("POST", "/api/logout", cookie)).status == 403
        assert (await page.ask("POST", "/api/logout", {**cookie, "x-csrf-token": csrf})).status == 200
        assert (await page.ask("GET", "/metrics", cookie)).status == 401


async def test_sessions_are_bounded(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.http.visitors.MOST_SESSIONS", 3)
    async with start(more=LOCKED) as running:
        page = await browser(running)
        cookies = [(await log_in(page, "ann", "secret"))[0] for _ in range(5)]
        answers = [(await page.ask("GET", "/metrics", cookie)).status for cookie in cookies]
        assert answers == [401, 401, 200, 200, 200]


async def test_a_session_lasts_a_day(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(more=LOCKED) as running:
        page = await browser(running)
        cookie, _ = await log_in(page, "ann", "secret")
        now = trio.current_time()
        monkeypatch.setattr("barnabas.broker.http.visitors.SESSION_SECONDS", 0.0)
        await until(lambda: trio.current_time() > now)
        assert (await page.ask("GET", "/metrics", cookie)).status == 401


async def test_who_may_not_describe_the_cluster_sees_no_metrics(start: Start) -> None:
    locked = {
        **LOCKED,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ann",
    }
    async with start(more=locked) as running:
        page = await browser(running)
        assert (await page.ask("GET", "/metrics", basic("ann", "secret"))).status == 200
        assert (await page.ask("GET", "/metrics", basic("bob", "other"))).status == 403


# --- what is refused at the start -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"barnabas.http.listen": "0.0.0.0:0"}, "without TLS"),
        ({"barnabas.http.listen": ":0"}, "without TLS"),
        ({"barnabas.http.listen": "https://0.0.0.0:0", "ssl.keystore.location": "/none"}, "without a login"),
    ],
)
async def test_strangers_are_kept_out(start: Start, settings: dict[str, str], says: str) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with start(more=settings):
            pass
    assert caught.group_contains(ConfigError, match=says, depth=None)


async def test_an_operator_may_trust_the_network(start: Start) -> None:
    trusted = {"barnabas.http.listen": "0.0.0.0:0", "barnabas.http.trusted.network": "true"}
    async with start(more=trusted) as running:
        assert (await (await browser(running)).ask("GET", "/metrics")).status == 200


@pytest.mark.parametrize("value", ["9644", "ftp://127.0.0.1:1", "127.0.0.1:70000", "127.0.0.1", "a:b:1"])
def test_a_wrong_address_is_told_with_the_right_form(value: str) -> None:
    with pytest.raises(ConfigError, match="expected HOST:PORT"):
        BrokerConfig({"barnabas.http.listen": value})


def test_what_is_not_installed_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("barnabas.broker.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "h11", None)

    async def make() -> None:
        Node(BrokerConfig(HTTP))

    with pytest.raises(ConfigError, match=r"needs h11: install it with pip install 'barnabas\[http\]'"):
        trio.run(make)


# --- strangers --------------------------------------------------------------------------------------------------------


async def test_connections_that_are_held_open_are_in_their_own_way(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 4)
    async with start(more=HTTP) as running:
        http = running.node.http
        assert http is not None
        idle = []
        for number in range(10):
            idle.append(await browser(running))
            await idle[-1].stream.send_all(b"GET /heal")
            await until(lambda: len(http._server) == min(number + 1, 4))
        page = await browser(running)
        assert (await page.ask("GET", "/healthz")).status == 200
        assert all([await each.is_closed() for each in idle[:6]])


async def test_without_a_free_descriptor_a_visitor_waits_until_there_is_one(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, refusals = trio.SocketListener.accept, iter(range(3))

    async def exhausted(listener: trio.SocketListener) -> trio.SocketStream:
        if next(refusals, None) is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(listener)

    monkeypatch.setattr(trio.SocketListener, "accept", exhausted)
    async with start(more=HTTP) as running:
        got = await (await browser(running)).ask("GET", "/healthz")
        assert (got.status, next(refusals, None)) == (200, None)


async def test_a_head_without_end_is_refused(start: Start) -> None:
    async with start(more=HTTP) as running:
        page = await browser(running)
        await page.stream.send_all(b"GET / HTTP/1.1\r\nX: " + b"x" * (64 << 10))
        assert await page.is_closed()


@pytest.mark.parametrize(
    "data",
    [b"\x00\x00\x00\x10\x00\x12\x00\x03rest of kafka", b"GET\r\n\r\n", b"GET http://[ HTTP/1.1\r\nHost: a\r\n\r\n"],
)
async def test_what_is_not_http_ends_its_connection_only(start: Start, data: bytes) -> None:
    async with start(more=HTTP) as running:
        wrong, right = await browser(running), await browser(running)
        await wrong.stream.send_all(data)
        assert await wrong.is_closed()
        assert (await right.ask("GET", "/healthz")).status == 200
        assert "http.failed" not in running.log


async def test_a_body_that_is_too_large_is_refused(start: Start) -> None:
    async with start(more=HTTP) as running:
        page = await browser(running)
        headers = {"x-csrf-token": await token(page)}
        assert (await page.ask("POST", "/api/logout", headers, b"x" * (1 << 20))).status == 200
        page = await browser(running)
        head = f"POST /api/logout HTTP/1.1\r\nHost: {page.host}\r\nx-csrf-token: {headers['x-csrf-token']}\r\n"
        await page.stream.send_all(head.encode() + b"Content-Length: 4000000\r\n\r\n")
        with contextlib.suppress(trio.BrokenResourceError):  # refused before all of it was sent
            for _ in range(4000):
                await page.stream.send_all(b"x" * 1000)
                await trio.lowlevel.checkpoint()
        assert await page.is_closed()


async def test_a_stranger_sends_no_body_that_is_read(start: Start) -> None:
    async with start(more=LOCKED) as running:
        page = await browser(running)
        await page.stream.send_all(
            f"POST /api/x HTTP/1.1\r\nHost: {page.host}\r\nContent-Length: 999999\r\n\r\n".encode()
        )
        got = bytes(await page.stream.receive_some(65536))
        assert got.startswith(b"HTTP/1.1 401 ")
        assert await page.is_closed()


async def test_a_client_that_stands_still_inside_a_request_is_let_go(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "PATIENCE_SECONDS", 0.05)
    async with start(more=HTTP) as running:
        page = await browser(running)
        assert (await page.ask("GET", "/healthz")).status == 200
        await page.stream.send_all(b"GET /healthz HTT")
        assert await page.is_closed()


async def test_the_csrf_token_of_one_is_not_anothers(start: Start) -> None:
    async with start(more=LOCKED) as running:
        page = await browser(running)
        _, anns = await log_in(page, "ann", "secret")
        bobs, _ = await log_in(page, "bob", "other")
        assert (await page.ask("POST", "/api/logout", {**bobs, "x-csrf-token": anns})).status == 403


# --- TLS --------------------------------------------------------------------------------------------------------------


async def test_over_tls_a_session_is_for_tls_alone(start: Start, tmp_path: Path) -> None:
    ca = Authority()
    safe = {
        **LOCKED,
        "barnabas.http.listen": "https://0.0.0.0:0",
        "ssl.keystore.type": "PEM",
        "listener.name.http.ssl.keystore.location": ca.issue().pem(tmp_path / "broker.pem"),
    }
    async with start(more=safe) as running:
        assert running.node.http is not None
        port = running.node.http.port
        assert running.node.http.url == f"https://localhost:{port}/"
        plain = await trio.open_tcp_stream("127.0.0.1", port)
        stream = trio.SSLStream(plain, client_context(ca), server_hostname="localhost", https_compatible=True)
        page = Browser(stream, f"localhost:{port}")
        body = b'{"name":"ann","password":"secret"}'
        headers = {"Content-Type": "application/json", "Origin": f"https://localhost:{port}"}
        got = await page.ask("POST", "/api/login", headers, body)
        assert got.status == 200
        assert got.headers["set-cookie"].endswith("; Secure")
        wrong = await browse(port)  # one that does not encrypt
        await wrong.stream.send_all(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert await wrong.is_closed()
        assert (await page.ask("GET", "/healthz")).status == 200
        assert "http.failed" not in running.log
