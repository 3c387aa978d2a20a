"""Our messages compared with independent implementations.

kafka-python and kio must read what we build and build it again to the byte; and our definitions must match the JSON
ones that kafka-python ships, field by field.
"""

from __future__ import annotations

import importlib
import io
import json
import re
from importlib.resources import files
from typing import Any

import construct as C
import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from barnabas.wire.codegen import message_codec
from barnabas.wire.messages.api_versions import ApiVersionsResponse
from barnabas.wire.schema import Blob, Entity, NullableStruct, Seq, Text, schema
from barnabas.wire.tests.strategies import all_messages, examples, value, versions_of
from barnabas.wire.types import Message

MESSAGES, KIO = all_messages(), files("kio.schema")
relaxed = settings(examples(3, 10), suppress_health_check=list(HealthCheck))


def kafka_python_class(cls: type[Message]) -> Any:
    if cls.__wire__.key < 0:
        return None  # the embedded consumer protocol: kafka-python's classes include its version prefix
    for package in ("admin", "consumer", "metadata", "producer", "sasl"):
        found = getattr(getattr(kafka.protocol, package), cls.__name__, None)
        if found is not None:
            return found
    return None


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def kio_module(cls: type[Message], version: int) -> str | None:
    """The name of kio's module, which is found without loading it: each process of pytest asks for all of them."""
    stem, kind = re.fullmatch(r"(\w+?)(Request|Response|)", cls.__name__).groups()  # type: ignore[union-attr]
    if not kind:
        return None
    path = KIO.joinpath(snake(stem), f"v{version}", f"{kind.lower()}.py")
    return f"kio.schema.{snake(stem)}.v{version}.{kind.lower()}" if path.is_file() else None


def kio_class(cls: type[Message], version: int) -> Any:
    module = kio_module(cls, version)
    assert module is not None
    return getattr(importlib.import_module(module), cls.__name__)


ORACLE_PYTHON = [c for c in MESSAGES if kafka_python_class(c) is not None]
ORACLE_KIO = [(c, [v for v in versions_of(c) if kio_module(c, v)]) for c in MESSAGES]
ORACLE_KIO = [(c, versions) for c, versions in ORACLE_KIO if versions]


def test_the_oracles_cover_most_of_the_protocol() -> None:
    assert len(ORACLE_PYTHON) >= 90
    assert len(ORACLE_KIO) >= 120


@pytest.mark.parametrize("cls", ORACLE_PYTHON, ids=lambda c: c.__name__)
def test_kafka_python_reads_and_rebuilds_our_bytes(cls: type[Message]) -> None:
    oracle = kafka_python_class(cls)

    @relaxed
    @given(st.data())
    def check(data: st.DataObject) -> None:
        for version in versions_of(cls):
            if not oracle.min_version <= version <= oracle.max_version:
                continue
            message = data.draw(value(schema(cls, version), tame=True))
            if cls is ApiVersionsResponse:  # if it has an error, kafka-python takes it for version 0
                message = msgspec.structs.replace(message, error_code=0)
            wire = message_codec(cls, version).build(message)
            theirs = oracle.decode(io.BytesIO(wire), version=version)
            theirs._header = None
            assert bytes(theirs.encode(version=version)) == wire, f"version {version}"

    check()


@pytest.mark.parametrize(("cls", "versions"), ORACLE_KIO, ids=lambda x: getattr(x, "__name__", ""))
def test_kio_reads_and_rebuilds_our_bytes(cls: type[Message], versions: list[int]) -> None:
    @relaxed
    @given(st.data())
    def check(data: st.DataObject) -> None:
        for version in versions:
            oracle = kio_class(cls, version)
            wire = message_codec(cls, version).build(data.draw(value(schema(cls, version), tame=True)))
            theirs, size = entity_reader(oracle)(wire, 0)
            assert size == len(wire)
            buffer = io.BytesIO()
            entity_writer(oracle)(buffer, theirs)
            assert buffer.getvalue() == wire, f"version {version}"

    check()


# --- field by field ---------------------------------------------------------------------------------------------------

RESOURCES = files("kafka.protocol.schemas.resources")


def json_of(cls: type[Message]) -> Any:
    path = RESOURCES / f"{cls.__name__}.json"
    if not path.is_file():
        return None
    return json.loads(re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE))


def spans(text: str | None, version: int) -> bool:
    if not text or text == "none":
        return False
    low, _, high = text.partition("-")
    if text.endswith("+"):
        return version >= int(text[:-1])
    return int(low) <= version <= int(high or low)


Field = tuple[str, str, bool, int | None, "list[Field] | None"]


def theirs_in(fields: list[Any], version: int, commons: dict[str, list[Any]]) -> list[Field]:
    """(name, type, nullable, tag, sub-fields) of a JSON structure in a version; tagged fields come last, by number."""
    rows: list[Field] = []
    for f in fields:
        if not spans(f.get("versions"), version):
            continue
        kind = f["type"]
        base = kind.removeprefix("[]")
        sub = f.get("fields") or commons.get(base)
        nullable = spans(f.get("nullableVersions"), version)
        tag = f.get("tag") if spans(f.get("taggedVersions"), version) else None
        shape = ("[]" if kind.startswith("[]") else "") + ("struct" if sub is not None else base)
        inner = theirs_in(sub, version, commons) if sub is not None else None
        rows.append((snake_json(f["name"]), shape, nullable, tag, inner))
    return sorted(rows, key=lambda r: -1 if r[3] is None else r[3])


def snake_json(name: str) -> str:
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


CODES = {"?": "bool", "b": "int8", "h": "int16", "H": "uint16", "l": "int32", "q": "int64", "d": "float64"}


def ours_in(entity: Entity) -> list[Field]:
    rows = [row(s.name, s.subcon, None) for s in entity.subcons]
    return rows + [row(name, con, tag) for tag, (name, con) in sorted(entity.tagged.items())]


def row(name: str, con: C.Construct, tag: int | None) -> Field:
    kind, nullable, sub = shape(con)
    return (name, kind, nullable, tag, sub)


def shape(con: C.Construct) -> tuple[str, bool, list[Field] | None]:
    if isinstance(con, C.FormatField):
        return CODES[con.fmtstr[1:]], False, None
    if isinstance(con, C.Bytes):
        return "uuid", False, None
    if isinstance(con, Text):
        return "string", con.nullable, None
    if isinstance(con, Blob):
        return "records" if con.view else "bytes", con.nullable, None
    if isinstance(con, Seq):
        kind, _, sub = shape(con.subcon)
        return "[]" + kind, con.nullable, sub
    if isinstance(con, NullableStruct):
        return "struct", True, ours_in(con.subcon)
    return "struct", False, ours_in(con)


@pytest.mark.parametrize("cls", [c for c in MESSAGES if json_of(c)], ids=lambda c: c.__name__)
def test_fields_are_those_of_kafkas_definitions(cls: type[Message]) -> None:
    definition = json_of(cls)
    commons = {c["name"]: c["fields"] for c in definition.get("commonStructs", [])}
    compared = 0
    for version in versions_of(cls):
        if spans(definition["validVersions"], version):
            compared += 1
            assert ours_in(schema(cls, version)) == theirs_in(definition["fields"], version, commons), version
            flexible = spans(definition["flexibleVersions"], version)
            assert (version in cls.__wire__.flexible) == flexible, version
    assert compared
