"""Reads the operator's https:, http: and file: URLs. No redirection is followed, and no other scheme is opened."""

from __future__ import annotations

import ssl
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, Request

SCHEMES = ("https", "http", "file")
_SECONDS = 10.0


def read_url(request: str | Request, most: int, context: ssl.SSLContext | None = None) -> bytes:
    """The whole content. Blocks. Raises OSError; ValueError for more than `most` bytes or a status other than 200."""
    parts = urlsplit(request if isinstance(request, str) else request.full_url)
    if parts.scheme not in SCHEMES:
        raise ValueError("it is not an https:, http: or file: URL")
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            return _bounded(file.read(most + 1), most)
    opener = OpenerDirector()
    for handler in (HTTPHandler(), HTTPSHandler(context=context)):
        opener.add_handler(handler)
    with opener.open(request, timeout=_SECONDS) as answer:
        if answer.status != 200:
            raise ValueError(f"the answer is HTTP {answer.status}")
        return _bounded(answer.read(most + 1), most)


def _bounded(data: bytes, most: int) -> bytes:
    if len(data) > most:
        raise ValueError(f"it has more than {most} bytes")
    return data


def shown(url: str) -> str:
    """A URL for the log, without its password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
