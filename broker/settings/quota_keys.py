"""The keys of quotas and of limits to connections.

Source: KIP-13, KIP-402 and KIP-612; defaults, bounds and what is changeable are those of Apache Kafka 4.3.1.
"""

from __future__ import annotations

from barnabas.broker.settings.keys import INT_MAX, ConfigError, ConfigKey

OVERRIDES = "max.connections.per.ip.overrides"


def parse_overrides(text: str) -> dict[str, int]:
    """The value of `max.connections.per.ip.overrides`, HOST:COUNT, ... Raises ConfigError."""
    found = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        host, colon, count = pair.rpartition(":")
        host = host.strip().removeprefix("[").removesuffix("]")
        if not (colon and host and count.strip().isdigit() and int(count) <= INT_MAX):
            expected = "expected HOST:COUNT, ..."
            raise ConfigError(f"Invalid value {pair!r} in {OVERRIDES}: {expected}")
        found[host] = int(count)
    return found


def _overrides(text: str) -> None:
    parse_overrides(text)


QUOTA_KEYS = [
    ConfigKey("max.connections", "int", INT_MAX, "Connections at one time; a further one takes the place of one of the "
        "client that has most, or is closed.", minimum=0, dynamic=True, of_listener=True),
    ConfigKey("max.connections.per.ip", "int", INT_MAX, "Connections at one time from one address.", minimum=0,
        dynamic=True),
    ConfigKey(OVERRIDES, "string", "", "The same for some addresses: HOST:COUNT, ...",
        dynamic=True, check=_overrides),
    ConfigKey("max.connection.creation.rate", "int", INT_MAX, "New connections in a second; further ones wait until "
        "they are accepted.", minimum=0, dynamic=True, of_listener=True),
    ConfigKey("quota.window.num", "int", 11, "Windows that client quotas look back over.", minimum=1),
    ConfigKey("quota.window.size.seconds", "int", 1, "How long each of them is.", minimum=1),
    ConfigKey("controller.quota.window.num", "int", 11, "Windows of the quota of changes of topics: a burst may take "
        "what all of them allow.", minimum=1),
    ConfigKey("controller.quota.window.size.seconds", "int", 1, "How long each of them is.", minimum=1),
]  # fmt: skip
