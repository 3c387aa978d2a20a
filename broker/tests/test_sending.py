"""How many calls send an answer, and that it arrives whole, however few bytes a socket accepts at a time."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.net.transport import GATHER_BYTES, SMALL_SLICE, send_some
from barnabas.storage.files import FileSlice, OpenFile
from barnabas.storage.io import Io
from barnabas.wire.types import SizedChunk

CONTENT = bytes(n * 7 % 251 for n in range(6 * SMALL_SLICE))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> OpenFile:
    path: Path = tmp_path_factory.mktemp("log") / "x.log"
    path.write_bytes(CONTENT)
    return OpenFile(Io(), str(path), os.O_RDONLY)


class Counted:
    """A socket that notes how many bytes each call has sent. It does not support sendfile."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.sent: list[int] = []

    def sendmsg(self, pieces: list[bytes], ancillary: tuple[()], flags: int) -> int:
        self.sent.append(self._sock.sendmsg(pieces, ancillary, flags))
        return self.sent[-1]

    def send(self, piece: bytes, flags: int) -> int:
        self.sent.append(self._sock.send(piece, flags))
        return self.sent[-1]

    def fileno(self) -> int:
        return self._sock.fileno()


def test_small_slices_leave_with_what_is_around_them(file: OpenFile) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        counted = Counted(ours)
        chunks: list[SizedChunk] = []
        for n in range(20):
            chunks += [b"head", FileSlice(Io(), file, n * 100, 100, cached=True), b"tail"]
        assert send_some(counted, chunks) == []  # type: ignore[arg-type]
        assert counted.sent == [20 * 108]
        expected = b"".join(b"head" + CONTENT[n * 100 : n * 100 + 100] + b"tail" for n in range(20))
        assert theirs.recv(1 << 16) == expected


def test_a_client_that_does_not_read_has_little_of_many_slices_in_memory(file: OpenFile) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        left: list[SizedChunk] = [FileSlice(Io(), file, 0, SMALL_SLICE, cached=True) for _ in range(1000)]
        while len(left) != len(left := send_some(ours, left)):
            pass
        held = sum(len(piece) for piece in left if not isinstance(piece, FileSlice))
        assert len(left) > 900
        assert held <= GATHER_BYTES + SMALL_SLICE


def test_a_large_slice_is_not_copied(file: OpenFile) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        counted = Counted(ours)
        piece = FileSlice(Io(), file, 0, SMALL_SLICE + 1, cached=True)
        assert send_some(counted, [b"head", piece, b"tail"]) == []  # type: ignore[arg-type]
        assert counted.sent == [4, 4]
        whole = b"head" + CONTENT[: SMALL_SLICE + 1] + b"tail"
        assert theirs.recv(len(whole), socket.MSG_WAITALL) == whole


PIECES = st.one_of(
    st.binary(min_size=1, max_size=3000),
    st.tuples(st.integers(0, SMALL_SLICE), st.integers(1, 2 * SMALL_SLICE), st.booleans()),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, max_size=12))
def test_everything_arrives_however_little_the_socket_takes(
    file: OpenFile, pieces: list[bytes | tuple[int, int, bool]]
) -> None:
    chunks: list[SizedChunk] = []
    expected = b""
    for piece in pieces:
        if isinstance(piece, bytes):
            chunks.append(piece)
            expected += piece
        else:
            start, size, cached = piece
            chunks.append(FileSlice(Io(), file, start, size, cached=cached))
            expected += CONTENT[start : start + size]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        got = b""
        while len(got) < len(expected):
            chunks = send_some(ours, chunks)
            got += theirs.recv(5000)
        assert chunks == []
    assert got == expected
