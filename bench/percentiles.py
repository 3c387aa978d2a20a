"""The percentiles of latencies."""

from __future__ import annotations


def percentiles(seconds: list[float]) -> dict[str, float]:
    """p50, p99 and p99.9 in milliseconds."""
    ordered = sorted(seconds)
    at = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    return {name: ordered[min(len(ordered) - 1, int(len(ordered) * q))] * 1000 for name, q in at.items()}
