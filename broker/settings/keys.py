"""A configuration key: its type and bounds, how its value is read from text and shown again.

`broker.settings.config` has the keys that are served, `broker.settings.unused_keys` Kafka's keys that are accepted
without effect.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class ConfigError(ValueError):
    """A key or value that cannot be used; the message is one line for the operator."""


# Numbers of DescribeConfigs' ConfigType and ConfigSource (KIP-226, KIP-569).
TYPES = {
    "unknown": 0,
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
SOURCE_TOPIC, SOURCE_DYNAMIC_BROKER, SOURCE_DYNAMIC_DEFAULT, SOURCE_STATIC, SOURCE_DEFAULT, SOURCE_LOGGER = range(1, 7)
SOURCE_CLIENT_METRICS = 7


@dataclass(frozen=True)
class ConfigKey:
    """One configuration key. `synonym` is the broker key that gives a topic key its default.

    A key that is not `used` is read, described and kept as in Kafka, but has no effect here.
    """

    name: str
    type: str
    default: Any
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    synonym: str | None = None
    dynamic: bool = False
    used: bool = True
    #: Whether a listener may have a value of its own, as `listener.name.NAME.KEY`.
    of_listener: bool = False
    check: Callable[[Any], None] | None = field(default=None, compare=False)

    @property
    def sensitive(self) -> bool:
        """Whether the value is never shown."""
        return self.type == "password"

    def parse(self, text: str) -> Any:
        """The value of a text. Raises ConfigError with the key, the value and what is expected."""
        text = text.strip()
        try:
            value = self._parse(text)
        except ValueError:
            raise ConfigError(f"Invalid value {text!r} for {self.name}: expected {self.type}") from None
        if self.minimum is not None and value < self.minimum:
            raise ConfigError(f"Invalid value {text} for {self.name}: must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise ConfigError(f"Invalid value {text} for {self.name}: must be at most {self.maximum}")
        for item in value if self.type == "list" else (value,):
            if self.choices and item not in self.choices:
                raise ConfigError(f"Invalid value {item} for {self.name}: must be one of {', '.join(self.choices)}")
        if self.check:
            self.check(value)
        return value

    def _parse(self, text: str) -> Any:
        if self.type == "boolean":
            if text.lower() not in ("true", "false"):
                raise ValueError
            return text.lower() == "true"
        if self.type in ("int", "long", "short"):
            value, bits = int(text), {"short": 15, "int": 31, "long": 63}[self.type]
            if not -(2**bits) <= value < 2**bits:
                raise ValueError
            return value
        if self.type == "double":
            number = float(text)
            if not math.isfinite(number):
                raise ValueError
            return number
        if self.type == "list":
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return text

    def show(self, value: Any) -> str | None:
        """A value as Kafka prints it; None for a secret."""
        if value is None or self.sensitive:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return re.sub(r"e[+]?", "E", repr(value))
        return str(value)
