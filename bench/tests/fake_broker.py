"""A server on loopback that answers every request with its correlation id and a body that the test chooses."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator

from bench import frames

Answer = Callable[[int, bytes], bytes]  # (API key, request after the size) -> the bytes after the correlation id
PRODUCE, API_VERSIONS = 0, 18


class FakeBroker:
    """The received requests, by connection, and the server's address."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[list[bytes]] = []
        self.lock = threading.Lock()
        self.address = ""

    def serve(self, sock: socket.socket) -> None:
        """Serve one connection, until it ends."""
        mine: list[bytes] = []
        with self.lock:
            self.requests.append(mine)
        file = sock.makefile("rb")
        while len(size := file.read(4)) == 4:
            request = file.read(int.from_bytes(size, "big"))
            mine.append(request)
            body = request[4:8] + self.answer(int.from_bytes(request[:2], "big"), request)
            sock.sendall(len(body).to_bytes(4, "big") + body)


@contextlib.contextmanager
def fake_broker(answer: Answer) -> Iterator[FakeBroker]:
    """Serve while the block runs."""
    broker = FakeBroker(answer)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):
                broker.serve(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        broker.address = f"127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield broker
        finally:
            server.shutdown()


def produce_answer(code: int = 0) -> bytes:
    """The body of an answer to a Produce request for topic `t`, with the tag block of its header."""
    from barnabas.wire.codegen import message_codec
    from barnabas.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

    part = PartitionProduceResponse(0, code)
    answer = ProduceResponse(responses=[TopicProduceResponse("t", partition_responses=[part])])
    return b"\0" + message_codec(ProduceResponse, frames.PRODUCE).build(answer)
