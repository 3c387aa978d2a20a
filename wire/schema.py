"""Turns a message class and a version into a `construct` tree.

The tree is the readable reference: `schema(FetchRequest, 16).parse(data)` interprets it, and `.compile()` gives the
same `parse`/`build` as generated flat code (`wire.codegen`). Both accept and refuse the same bytes.

Source: the Kafka protocol guide (primitive types) and KIP-482 (compact types and tag blocks).
"""

from __future__ import annotations

import functools
import io
import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import construct as C
import msgspec

from barnabas.wire.types import Message, Nullable, Primitive, Struct, Tag, Variable, Versions, ignorable


class ProtocolError(ValueError):
    """The bytes, or the values to send, do not fit the message's definition."""


def _read(stream: io.BytesIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise ProtocolError(f"{size} bytes expected, {len(data)} left")
    return data


class UVarInt(C.Construct):
    """Unsigned LEB128 of at most 32 bits (five bytes)."""

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> int:
        value = shift = 0
        while True:
            byte = _read(stream, 1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise ProtocolError("varint longer than five bytes")
        if value > 0xFFFFFFFF:
            raise ProtocolError("varint beyond 32 bits")
        return value

    def _build(self, obj: int, stream: io.BytesIO, context: Any, path: str) -> int:
        value = obj
        while value > 0x7F:
            stream.write(bytes((value & 0x7F | 0x80,)))
            value >>= 7
        stream.write(bytes((value,)))
        return obj


UVARINT = UVarInt()


class Length(C.Construct):
    """A length or count before a value; None stands for null. `wide` is the construct of the non-compact form."""

    def __init__(self, wide: C.Construct, compact: bool, nullable: bool) -> None:
        super().__init__()
        self.wide, self.compact, self.nullable = wide, compact, nullable

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> int | None:
        size = UVARINT._parse(stream, context, path) - 1 if self.compact else self.wide._parse(stream, context, path)
        if size >= 0:
            return size
        if size == -1 and self.nullable:
            return None
        raise ProtocolError(f"length {size}")

    def _build(self, obj: int | None, stream: io.BytesIO, context: Any, path: str) -> int | None:
        if obj is None and not self.nullable:
            raise ProtocolError("null where a value is needed")
        size = -1 if obj is None else obj
        if self.compact:
            UVARINT._build(size + 1, stream, context, path)
        else:
            self.wide._build(size, stream, context, path)
        return obj


class Text(C.Construct):
    """A UTF-8 string after an int16 or compact length."""

    def __init__(self, compact: bool, nullable: bool) -> None:
        super().__init__()
        self.compact, self.nullable = compact, nullable
        self.length = Length(C.Int16sb, compact, nullable)

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> str | None:
        size = self.length._parse(stream, context, path)
        return None if size is None else _read(stream, size).decode()

    def _build(self, obj: str | None, stream: io.BytesIO, context: Any, path: str) -> str | None:
        data = None if obj is None else obj.encode()
        self.length._build(None if data is None else len(data), stream, context, path)
        stream.write(data or b"")
        return obj


class Blob(C.Construct):
    """Bytes after an int32 or compact length. `view` marks record data, which generated code never copies."""

    def __init__(self, compact: bool, nullable: bool, view: bool = False) -> None:
        super().__init__()
        self.compact, self.nullable, self.view = compact, nullable, view
        self.length = Length(C.Int32sb, compact, nullable)

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> bytes | None:
        size = self.length._parse(stream, context, path)
        return None if size is None else _read(stream, size)

    def _build(self, obj: bytes | None, stream: io.BytesIO, context: Any, path: str) -> bytes | None:
        self.length._build(None if obj is None else len(obj), stream, context, path)
        stream.write(obj or b"")
        return obj


class Seq(C.Subconstruct):
    """An array after an int32 or compact count."""

    def __init__(self, subcon: C.Construct, compact: bool, nullable: bool) -> None:
        super().__init__(subcon)
        self.compact, self.nullable = compact, nullable
        self.length = Length(C.Int32sb, compact, nullable)

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> list[Any] | None:
        count = self.length._parse(stream, context, path)
        if count is None:
            return None
        if count > len(stream.getbuffer()) - stream.tell():  # an element takes at least one byte
            raise ProtocolError(f"{count} elements in too few bytes")
        return [self.subcon._parsereport(stream, context, path) for _ in range(count)]

    def _build(self, obj: list[Any] | None, stream: io.BytesIO, context: Any, path: str) -> list[Any] | None:
        self.length._build(None if obj is None else len(obj), stream, context, path)
        for element in obj or ():
            self.subcon._build(element, stream, context, path)
        return obj


class NullableStruct(C.Subconstruct):
    """A structure after an int8: -1 for null, anything else for present."""

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> Any:
        mark = C.Int8sb._parse(stream, context, path)
        return None if mark < 0 else self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> Any:
        C.Int8sb._build(-1 if obj is None else 1, stream, context, path)
        if obj is not None:
            self.subcon._build(obj, stream, context, path)
        return obj


class Entity(C.Struct):
    """One structure in one version.

    `subcons` are the fields in wire order; `tagged` are those of the tag block, by number. `absent` are the fields that
    this version lacks, each with whether its value may be dropped.
    """

    def __init__(
        self,
        cls: type[Struct],
        fields: dict[str, C.Construct],
        tagged: dict[int, tuple[str, C.Construct]],
        absent: dict[str, bool],
        flexible: bool,
    ) -> None:
        super().__init__(**fields)
        self.cls, self.tagged, self.absent, self.flexible = cls, tagged, absent, flexible
        self.defaults = defaults_of(cls)

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> Any:
        values = {subcon.name: subcon._parsereport(stream, context, path) for subcon in self.subcons}
        if self.flexible:
            for _ in range(UVARINT._parse(stream, context, path)):
                number = UVARINT._parse(stream, context, path)
                body = io.BytesIO(_read(stream, UVARINT._parse(stream, context, path)))
                if number in self.tagged:
                    name, subcon = self.tagged[number]
                    values[name] = subcon._parsereport(body, context, path)
                    if body.read(1):
                        raise ProtocolError(f"tagged field {name} is shorter than its size")
        return self.cls(**values)

    def _build(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> Any:
        for name, droppable in self.absent.items():
            if not droppable and getattr(obj, name) != self.defaults[name]:
                raise ProtocolError(f"{self.cls.__name__}.{name} does not exist in this version")
        for subcon in self.subcons:
            subcon._build(getattr(obj, subcon.name), stream, context, path)
        if self.flexible:
            present = {n: t for n, t in sorted(self.tagged.items()) if getattr(obj, t[0]) != self.defaults[t[0]]}
            UVARINT._build(len(present), stream, context, path)
            for number, (name, subcon) in present.items():
                body = io.BytesIO()
                subcon._build(getattr(obj, name), body, context, path)
                UVARINT._build(number, stream, context, path)
                UVARINT._build(len(body.getvalue()), stream, context, path)
                stream.write(body.getvalue())
        return obj

    def parse(self, data: bytes, **context: Any) -> Any:
        """Interpret `data`. Raises ProtocolError for anything invalid; bytes after the message are ignored."""
        try:
            return self.parse_stream(io.BytesIO(data), **context)
        except (C.ConstructError, UnicodeDecodeError) as error:
            raise ProtocolError(str(error)) from error

    def build(self, obj: Any, **context: Any) -> bytes:
        """The bytes of `obj`. Raises ProtocolError for values that this version cannot carry."""
        try:
            built: bytes = super().build(obj, **context)
        except (C.ConstructError, UnicodeEncodeError, TypeError, AttributeError) as error:
            raise ProtocolError(str(error)) from error
        return built

    def compile(self, filename: str | None = None) -> C.Construct:
        """The same codec as generated flat functions. (construct's own compiler drops validation and custom types.)"""
        from barnabas.wire.codegen import Compiled

        return Compiled(self)


def defaults_of(cls: type[Struct]) -> dict[str, Any]:
    """The default of every field by name. Callers create mutable ones themselves."""
    found = {}
    for field in msgspec.structs.fields(cls):  # type: ignore[arg-type]
        if field.default is not msgspec.NODEFAULT:
            found[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            found[field.name] = field.default_factory()
        else:
            raise TypeError(f"{cls.__name__}.{field.name} has no default")
    return found


def _construct_of(hint: Any, version: int, flexible: bool, nullable: bool) -> C.Construct:
    origin = get_origin(hint)
    if origin is Annotated:
        for mark in hint.__metadata__:
            if isinstance(mark, Primitive):
                return mark.construct
            if isinstance(mark, Variable):
                if mark.kind == "text":
                    return Text(flexible, nullable)
                return Blob(flexible, nullable, view=mark.kind == "records")
        return _construct_of(hint.__origin__, version, flexible, nullable)
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return _construct_of(inner, version, flexible, nullable)
    if origin is list:
        return Seq(_construct_of(get_args(hint)[0], version, flexible, False), flexible, nullable)
    if isinstance(hint, type) and issubclass(hint, Struct):
        entity = _entity(hint, version, flexible)
        return NullableStruct(entity) if nullable else entity
    raise TypeError(f"no wire form for {hint!r}")


def _marks(hint: Any) -> tuple[Any, ...]:
    """All metadata of a field; `Annotated` inside a union (`String | None`) belongs to the type, not to the field."""
    return hint.__metadata__ if get_origin(hint) is Annotated else ()


def _is_optional(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        hint = hint.__origin__
    return get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)


@functools.cache
def _hints(cls: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {name: hints[name] for name in cls.__struct_fields__}


def _entity(cls: type[Struct], version: int, flexible: bool) -> Entity:
    fields: dict[str, C.Construct] = {}
    tagged: dict[int, tuple[str, C.Construct]] = {}
    absent: dict[str, bool] = {}
    for name, hint in _hints(cls).items():  # type: ignore[arg-type]
        marks = _marks(hint)
        if any(isinstance(m, Versions) and version not in m for m in marks):
            absent[name] = ignorable in marks
            continue
        nullable = _is_optional(hint)
        if nullable:
            nullable = all(version in m.versions for m in marks if isinstance(m, Nullable))
        subcon = _construct_of(hint, version, flexible, nullable)
        tag = next((m for m in marks if isinstance(m, Tag)), None)
        if tag is None:
            fields[name] = subcon
        else:
            tagged[tag.number] = (name, subcon)
    return Entity(cls, fields, tagged, absent, flexible)


def schema(cls: type[Message], version: int) -> Entity:
    """The construct tree of a message in one version.

    Raises ProtocolError if Kafka has no such version of the message.
    """
    spec = cls.__wire__
    if version not in spec.versions:
        raise ProtocolError(f"{cls.__name__} has no version {version}")
    return _entity(cls, version, version in spec.flexible)
