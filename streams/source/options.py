"""The options of the `wal` data source, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from barnabas.streams.source.offsets import EARLIEST, LATEST, Position, parse_position
from barnabas.streams.wal import LogDir, WalError, schema_of
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.patterns import PatternError, pattern

#: The formats that make columns from the value.
TYPED = ("json", "csv", "avro")
FORMATS = ("kafka", "raw", *TYPED)
FRAMINGS = ("none", "confluent")
MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
# Options for reading a value, by their format.
_OF_FORMAT = {"csv": ("sep", "nullValue"), "avro": ("avroSchema", "avroFraming")}
_NAMES = (
    "path", "topic", "topics", "topicPattern", "bootstrap.servers", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "failOnDataLoss",
    "splitBytes", "columns", "includeHeaders", "format", "mode", "sep", "nullValue", "avroSchema", "avroFraming",
)  # fmt: skip
_BY_LOWER = {name.lower(): name for name in _NAMES}


class Options(msgspec.Struct, frozen=True):
    """The options of a query. `starting` and `ending` are None if the kind of query decides."""

    path: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    bootstrap: str | None = None
    starting: Position | None = None
    ending: Position | None = None
    max_offsets: int | None = None
    max_bytes: int | None = None
    fail_on_data_loss: bool = True
    split_bytes: int | None = None
    columns: tuple[str, ...] = ()
    include_headers: bool = False
    format: str = "kafka"
    mode: str = "PERMISSIVE"
    separator: str = ","
    null_value: str = ""
    avro_schema: str = ""
    avro_framing: str = "none"

    def reads(self, topic: str) -> bool:
        """Whether the options name this topic."""
        return pattern(self.pattern).matches(topic) if self.pattern else topic in self.topics

    def keys(self, log_dir: LogDir) -> list[TopicPartition]:
        """The partitions of the topics in the options, in order. Raises WalError for an unknown topic."""
        names = self.topics
        if self.pattern:
            names = tuple(name for name in log_dir.topics() if self.reads(name))
        return [key for name in names for key in log_dir.partitions(name)]


def parse(given: Mapping[str, str]) -> Options:
    """The options from Spark; their names may be in any case. Raises WalError."""
    found: dict[str, str] = {}
    for name, value in given.items():
        known = _BY_LOWER.get(name.lower())
        if known is None:
            raise WalError(f"there is no option {name}: the wal source has {', '.join(_NAMES)}")
        found[known] = value
    if not found.get("path"):
        raise WalError('the option path is missing: .load("FOLDER") with the path in log.dir of the broker')
    named = [name for name in ("topic", "topics", "topicPattern") if name in found]
    if len(named) != 1:
        raise WalError(f"one of topic, topics, topicPattern is needed, {' and '.join(named) or 'none'} is given")
    topics = tuple(dict.fromkeys(name.strip() for name in found.get(named[0], "").split(",") if name.strip()))
    if named[0] == "topicPattern":
        topics = ()
        try:
            pattern(found["topicPattern"])
        except PatternError as error:
            raise WalError(f"topicPattern: {error}") from None
    elif not topics:
        raise WalError(f"the option {named[0]} names no topic")
    kind = _one_of(found, "format", FORMATS, "kafka")
    for other, names in _OF_FORMAT.items():
        misplaced = [name for name in names if name in found and kind != other]
        if misplaced:
            raise WalError(f"{misplaced[0]} is for format={other}: leave it out")
    if kind == "avro" and "avroSchema" not in found:
        raise WalError(
            "format=avro needs the option avroSchema: the JSON of the schema that the values are written with"
        )
    separator = found.get("sep", ",")
    if len(separator.encode()) != 1 or separator in '"\r\n':
        raise WalError(f"sep={separator!r}: expected one character, no quote or end of a line")
    columns = tuple(name.strip() for name in found.get("columns", "").split(",") if name.strip())
    if columns:
        schema_of(columns)
    return Options(
        path=found["path"],
        topics=topics,
        pattern=found.get("topicPattern", ""),
        bootstrap=found.get("bootstrap.servers"),
        starting=_position(found, "starting", EARLIEST),
        ending=_position(found, "ending", LATEST),
        max_offsets=_number(found, "maxOffsetsPerTrigger"),
        max_bytes=_number(found, "maxBytesPerTrigger"),
        fail_on_data_loss=_flag(found, "failOnDataLoss", True),
        split_bytes=_number(found, "splitBytes"),
        columns=columns,
        include_headers=_flag(found, "includeHeaders", False),
        format=kind,
        mode=_one_of(found, "mode", MODES, "PERMISSIVE"),
        separator=separator,
        null_value=found.get("nullValue", ""),
        avro_schema=found.get("avroSchema", ""),
        avro_framing=_one_of(found, "avroFraming", FRAMINGS, "none"),
    )


def _position(found: Mapping[str, str], which: str, otherwise: int) -> Position | None:
    offsets, timestamp = f"{which}Offsets", f"{which}Timestamp"
    if timestamp in found:
        if offsets in found:
            raise WalError(f"{offsets} and {timestamp} are both given: leave one out")
        return Position(timestamp=_number(found, timestamp, least=0))
    return parse_position(offsets, found[offsets], otherwise) if offsets in found else None


def _number(found: Mapping[str, str], name: str, least: int = 1) -> int | None:
    if name not in found:
        return None
    try:
        value = int(found[name])
    except ValueError:
        value = least - 1
    if value < least:
        raise WalError(f"{name}={found[name]}: expected a whole number from {least} on")
    return value


def _flag(found: Mapping[str, str], name: str, otherwise: bool) -> bool:
    text = found.get(name, str(otherwise)).lower()
    if text not in ("true", "false"):
        raise WalError(f"{name}={found[name]}: expected true or false")
    return text == "true"


def _one_of(found: Mapping[str, str], name: str, known: tuple[str, ...], otherwise: str) -> str:
    """The value in the spelling of `known`, whatever its case."""
    text = {text.lower(): text for text in known}.get(found.get(name, otherwise).lower(), "")
    if not text:
        raise WalError(f"{name}={found[name]}: expected one of {', '.join(known)}")
    return text
