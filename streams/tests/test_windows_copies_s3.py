"""Copies of checkpoints in an object store: S3's requests, answered by moto's server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
pytest.importorskip("obstore", reason="obstore is not installed: make setup-all")
pytest.importorskip("moto.server", reason="moto is not installed: make setup-test")

import obstore
from moto.server import ThreadedMotoServer

from barnabas.streams.query.errors import reason_of
from barnabas.streams.tests.test_windows_copies import GROUP, checkpoint
from barnabas.streams.windows.checkpoint import Folder
from barnabas.streams.windows.copies import Copies

TARGET = "s3://bucket/prefix"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedMotoServer]:
    """A server with an empty bucket, and the environment that names it."""
    found = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    found.start()
    host, port = found.get_host_and_port()
    there = {"AWS_ENDPOINT": f"http://{host}:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    for name, value in (there | {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret"}).items():
        monkeypatch.setenv(name, value)
    urlopen(Request(f"{there['AWS_ENDPOINT']}/bucket", method="PUT")).close()
    yield found
    found.stop()


def test_copies_are_kept_found_passed_over_where_damaged_and_removed(
    server: ThreadedMotoServer, tmp_path: Path
) -> None:
    folder, copies = Folder(str(tmp_path), "query"), Copies(TARGET, "cluster")
    assert (copies.newest(), copies.restore("query", folder)) == ([], None)
    for last in (3, 4, 5):
        checkpoint(folder, last)
        assert copies.save(GROUP, folder) == last
    names = {f"cluster/query/{batch:020}.{kind}" for batch in (4, 5) for kind in ("json", "tar")}
    assert set(copies._names("query")) == names, "two are kept"
    (found,) = Copies(TARGET, "cluster").newest()
    assert (found.group, found.batch, found.checkpoint) == (GROUP, 5, "id-1")
    assert Copies(TARGET, "another").newest() == []

    whole, older = (Folder(str(tmp_path / name), "query") for name in ("whole", "older"))
    assert (copies.restore("query", whole), whole.last_batch()) == (5, 5)
    newest = f"cluster/query/{5:020}.tar"
    data = bytes(obstore.get(copies._store, newest).bytes())
    obstore.put(copies._store, newest, data.replace(b"changes 6", b"changes 7"))
    assert (copies.restore("query", older), older.last_batch()) == (4, 4)
    copies.remove("query")
    assert not set(copies._names(""))


@pytest.mark.long
def test_a_store_that_is_away_is_an_error_of_one_line_and_its_copies_are_there_when_it_is_back(
    server: ThreadedMotoServer, tmp_path: Path
) -> None:
    folder, copies = Folder(str(tmp_path), "query"), Copies(TARGET, "cluster")
    checkpoint(folder, 3)
    copies.save(GROUP, folder)
    _, port = server.get_host_and_port()
    server.stop()
    checkpoint(folder, 4)
    there = folder.last_batch()
    for ask in (copies.newest, lambda: copies.save(GROUP, folder), lambda: copies.restore("query", folder)):
        with pytest.raises(Exception, match="error sending request") as found:
            ask()
        assert "\n" not in reason_of(found.value)
    assert folder.last_batch() == there, "what is there stays"
    assert not [path for path in Path(folder.path).iterdir() if "copying" in path.name or "restoring" in path.name]

    back = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    back.start()
    try:
        assert [copy.batch for copy in copies.newest()] == [3]
        assert copies.save(GROUP, folder) == 4
    finally:
        back.stop()


def test_a_bucket_that_is_not_there_is_named(server: ThreadedMotoServer, tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "query")
    checkpoint(folder, 3)
    with pytest.raises(Exception, match="NoSuchBucket"):
        Copies("s3://nobodys/prefix", "cluster").save(GROUP, folder)
