"""The files of the console's page. They are read once, and sent with an ETag, so a browser loads each one only once.

Source: RFC 9110, 13 (ETag, If-None-Match).
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

from barnabas.broker.http.messages import Request, Response

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class File(NamedTuple):
    """A file in the form in which it is sent."""

    body: bytes
    content_type: str
    tag: str


@cache
def files() -> dict[str, File]:
    """All files, by name."""
    found: dict[str, File] = {}
    for each in resources.files("barnabas.broker.http").joinpath("static").iterdir():
        kind = _TYPES.get(each.name.rpartition(".")[2])
        if kind is not None:
            body = each.read_bytes()
            found[each.name] = File(body, kind, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    return found


def page(request: Request) -> Response | None:
    """The file for a path below /console/; None if there is none."""
    found = files().get(request.path.removeprefix("/console/") or "index.html")
    if found is None or request.method not in ("GET", "HEAD"):
        return None
    headers = [("ETag", found.tag), ("Cache-Control", "no-cache")]
    if request.headers.get("if-none-match") == found.tag:
        return Response(304, b"", found.content_type, headers)
    return Response(200, found.body, found.content_type, headers)
