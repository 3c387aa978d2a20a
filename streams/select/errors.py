"""Why a query is left to Spark."""

from __future__ import annotations


class NeedsSpark(Exception):
    """Spark must answer; the text says why, in a few words."""
