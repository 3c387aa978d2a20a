"""Gives a node's metrics to other nodes, as text, without importing the libraries that make it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


class Page:
    """`render` gives the text and its content type for an Accept header; it is None without an HTTP listener."""

    render: Callable[[str], Awaitable[tuple[bytes, str]]] | None = None
