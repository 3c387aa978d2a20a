"""Draw the results of a stream in a browser: dashboard.py SERVER PORT"""

import json
import queue
import sys
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

KEPT = 300
PAGE = Path(__file__).with_name("page.html")


class Windows:
    """The newest windows, and who waits for further ones."""

    def __init__(self) -> None:
        self._newest: deque[str] = deque(maxlen=KEPT)
        self._watchers: set[queue.SimpleQueue[str]] = set()
        self._lock = threading.Lock()

    def add(self, window: str) -> None:
        with self._lock:
            self._newest.append(window)
            for watcher in self._watchers:
                watcher.put(window)

    def watch(self) -> queue.SimpleQueue[str]:
        """All that is here, and all that comes."""
        watcher: queue.SimpleQueue[str] = queue.SimpleQueue()
        with self._lock:
            for window in self._newest:
                watcher.put(window)
            self._watchers.add(watcher)
        return watcher

    def leave(self, watcher: queue.SimpleQueue[str]) -> None:
        with self._lock:
            self._watchers.discard(watcher)


def follow(server: str, windows: Windows) -> None:
    """Read the stream's topic from its beginning on. A consumer without a group needs no coordinator."""
    settings = {"bootstrap.servers": server, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    partitions = consumer.list_topics("averages", 30).topics["averages"].partitions
    consumer.assign([TopicPartition("averages", partition, 0) for partition in partitions])
    while True:
        result = consumer.poll(1)
        if result is not None and result.error() is None:
            windows.add(json.dumps(json.loads(result.value())))


def handler(windows: Windows) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/":
                self._answer("text/html; charset=utf-8", PAGE.read_bytes())
            elif self.path == "/windows":
                self._events()
            else:
                self.send_error(404)

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _events(self) -> None:
            """Server-sent events, one for each window, until the browser leaves."""
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            watcher = windows.watch()
            try:
                while True:
                    self.wfile.write(f"data: {watcher.get()}\n\n".encode())
            except OSError:
                pass
            finally:
                windows.leave(watcher)

        def log_message(self, *_: object) -> None:
            """The terminal is for errors."""

    return Handler


def main() -> None:
    server, port = sys.argv[1], int(sys.argv[2])
    windows = Windows()
    threading.Thread(target=follow, args=(server, windows), daemon=True).start()
    with ThreadingHTTPServer(("127.0.0.1", port), handler(windows)) as http:
        print(f"http://127.0.0.1:{http.server_port}", flush=True)
        http.serve_forever()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
