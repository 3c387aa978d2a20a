"""A server that freezes, a server with TLS and ed25519 logins, and transactions in two parts (XA)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import place_of
from compat_tests.binlog.subscriber import Subscriber, messages
from compat_tests.broker_process import Server
from compat_tests.waiting import until

#: The folders of MariaDB's plugins.
PLUGINS = Path(os.environ.get("BARNABAS_MARIADB_PLUGINS", "/usr/lib/mysql/plugin"))


@pytest.mark.long
def test_a_frozen_server_is_noticed_and_read_on(tmp_path: Path, own_mariadb: MariaDb, server: Server) -> None:
    own_mariadb.sql("CREATE DATABASE frozen", "CREATE TABLE frozen.t (id INT PRIMARY KEY)")
    subscriber = Subscriber(tmp_path, own_mariadb, server.address, "frozen", "--tables", "frozen.*", "--silence", "3")
    subscriber.start()
    subscriber.reading()
    own_mariadb.sql("INSERT INTO frozen.t VALUES (1)")
    subscriber.wait_for(place_of(own_mariadb).gtids)
    own_mariadb.pause()
    try:
        until(lambda: "has been silent for 3 s" in subscriber.told(), "the silence is noticed")
        until(lambda: "does not answer in 3 s" in subscriber.told(), "it tries again")
    finally:
        own_mariadb.resume()
    own_mariadb.sql("INSERT INTO frozen.t VALUES (2)")
    subscriber.wait_for(place_of(own_mariadb).gtids)
    assert subscriber.stop() == 0
    assert [each["field"] for each in messages(server.address, "frozen.t")] == [["1"], ["2"]]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A key and a self-signed certificate for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return key, certificate


@pytest.mark.parametrize("plugin", ["mysql_native_password", "ed25519"])
def test_tls_and_ways_to_authenticate(
    tmp_path: Path, installed: Path, certificate: tuple[Path, Path], server: Server, plugin: str
) -> None:
    settings = {"ssl_key": str(certificate[0]), "ssl_cert": str(certificate[1])}
    if plugin == "ed25519":
        pytest.importorskip("nacl", reason="PyNaCl is not installed: make setup-all")
        if not (PLUGINS / "auth_ed25519.so").exists():
            pytest.skip("MariaDB's ed25519 is not installed: apt-get install mariadb-server")
        settings |= {"plugin_dir": str(PLUGINS), "plugin-load-add": "auth_ed25519"}
    mariadb = MariaDb(tmp_path / "mariadb", installed, **settings)
    mariadb.start()
    mariadb.prepare()
    try:
        mariadb.sql(
            f"CREATE USER safe@'127.0.0.1' IDENTIFIED VIA {plugin} USING PASSWORD('it''s secret') REQUIRE SSL",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT, BINLOG MONITOR, SELECT ON *.* TO safe@'127.0.0.1'",
            "CREATE DATABASE safe",
            "CREATE TABLE safe.t (v LONGTEXT)",
        )
        url = f"mysql://safe@127.0.0.1:{mariadb.port}"
        options = ("--tables", "safe.*", "--prefix", plugin)
        subscriber = Subscriber(tmp_path, mariadb, server.address, f"safe-{plugin}", *options)

        def refused(options: str, password: str = "it's secret") -> str:
            subscriber.start(url + options, password)
            return subscriber.ended()

        assert "Access denied" in refused("")
        assert "Access denied" in refused("?tls=require", "wrong")
        assert "TLS failed" in refused("?tls=verify")
        subscriber.start(f"{url}?tls=verify&ca={certificate[1]}", "it's secret")
        subscriber.reading()
        mariadb.sql("INSERT INTO safe.t VALUES ('a'), (REPEAT('long', 50000))")
        subscriber.wait_for(place_of(mariadb).gtids)
        assert subscriber.stop() == 0
        assert [len(each["field"][0]) for each in messages(server.address, f"{plugin}.t")] == [3, 200_002]
    finally:
        mariadb.kill()


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_what_is_prepared_before_and_ended_after_the_reader_starts_again(
    tmp_path: Path, mariadb: MariaDb, server: Server, end: str
) -> None:
    name = f"xa_{end.lower()}"
    mariadb.sql(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    options = ("--tables", f"{name}.*", "--topic-per", "server", "--prefix", name)
    subscriber = Subscriber(tmp_path, mariadb, server.address, name, *options)
    subscriber.start()
    subscriber.reading()
    mariadb.sql(f"XA START '{name}'", f"INSERT INTO {name}.t VALUES (1)", f"XA END '{name}'", f"XA PREPARE '{name}'")
    subscriber.wait_for(place_of(mariadb).gtids)
    subscriber.kill()
    mariadb.sql(f"XA {end} '{name}'", f"INSERT INTO {name}.t VALUES (2)")
    subscriber.start()
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    found = messages(server.address, name)
    assert [each["field"] for each in found if each["eventtypestr"] == "insert"] == [["1"], ["2"]]
    statements = [each["sql"].split()[:2] for each in found if each["eventtypestr"] == "query"]
    assert statements == [["XA", end]]
