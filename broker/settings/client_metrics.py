"""Which metrics clients are to push (KIP-714): the keys of a client-metrics resource, and the clients it applies to.

A subscription has the prefixes of the wanted metrics, an interval, and patterns for clients. A client pushes the
metrics of all subscriptions that match it, at the shortest of their intervals.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.broker.settings.keys import ConfigError, ConfigKey
from barnabas.wire.patterns import PatternError, pattern

INTERVAL_MS = 300_000
#: The attributes of a client that a pattern may match.
SELECTORS = (
    *("client_instance_id", "client_id", "client_software_name", "client_software_version"),
    *("client_source_address", "client_source_port"),
)
#: More subscriptions than this are not kept.
MOST = 1000
_PATTERNS_MOST = 10

KEYS = {
    key.name: key
    for key in (
        ConfigKey("metrics", "list", (), "Prefixes of the names of the metrics that are wanted; * for all."),
        ConfigKey(
            "interval.ms",
            "int",
            INTERVAL_MS,
            "How often clients push them.",
            minimum=100,
            maximum=3_600_000,
        ),
        ConfigKey(
            "match", "list", (), f"NAME=PATTERN, of {', '.join(SELECTORS)}; all have to match. Default: every client."
        ),
    )
}


@dataclass(frozen=True)
class Subscription:
    """The metrics that a client is asked for. `id` changes when they do."""

    metrics: tuple[str, ...]
    interval_ms: int

    @property
    def id(self) -> int:
        text = f"{self.interval_ms} {','.join(self.metrics)}"
        return zlib.crc32(text.encode()) - 2**31


def check(configs: Mapping[str, str]) -> None:
    """Raises ConfigError for invalid values of a client-metrics resource."""
    for name, value in configs.items():
        KEYS[name].parse(value)
    if "match" in configs:
        _matches(configs["match"])


def _matches(text: str) -> dict[str, str]:
    """Patterns by attribute. Raises ConfigError."""
    found = {}
    for pair in (each.strip() for each in text.split(",") if each.strip()):
        name, equals, given = pair.partition("=")
        if not equals or name.strip() not in SELECTORS:
            raise ConfigError(
                f"Illegal client matching pattern: {pair}: expected one of {', '.join(SELECTORS)}=PATTERN"
            )
        try:
            pattern(given.strip())
        except PatternError as error:
            raise ConfigError(f"Illegal client matching pattern: {error}") from None
        found[name.strip()] = given.strip()
    if len(found) > _PATTERNS_MOST:
        raise ConfigError(f"Too many client matching patterns: at most {_PATTERNS_MOST}")
    return found


def subscription(resources: Iterable[Mapping[str, str]], client: Mapping[str, str]) -> Subscription:
    """The subscription of a client from the resources that match it; `client` has a value for each of SELECTORS.

    A client that no resource matches is asked for nothing, and asks again after the usual time.
    """
    metrics: set[str] = set()
    intervals = []
    for configs in resources:
        if all(pattern(text).matches(client[name]) for name, text in _matches(configs.get("match", "")).items()):
            metrics.update(name.strip() for name in configs.get("metrics", "").split(",") if name.strip())
            intervals.append(int(configs.get("interval.ms", INTERVAL_MS)))
    if "*" in metrics:
        metrics = {""}  # the prefix of all metrics
    return Subscription(tuple(sorted(metrics)), min(intervals, default=INTERVAL_MS))
