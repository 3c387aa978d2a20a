"""Flat parse and build functions, generated from a construct tree (`wire.schema.Entity`).

Runs of fixed-size values, together with the length prefix or tag count that follows them, become one `unpack_from` or
`pack`; an array of fixed-size structures becomes one `iter_unpack`. Strings are decoded from the frame; record data is
passed on as a view of it. Reading past `end` always fails in `decode(buf, pos, end)`: a slice that comes out short
moves `pos` beyond `end`, and then either the next read or the last check raises. `room` limits the elements of all
arrays of a message together, because a byte or two of a frame can stand for a structure that takes hundreds in memory.
"""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import construct as C

from barnabas.wire.aliases import BytesLike
from barnabas.wire.schema import Blob, Entity, NullableStruct, ProtocolError, Seq, Text, schema
from barnabas.wire.types import Message, SizedChunk
from barnabas.wire.varint import more, uvarint

__all__ = ["Compiled", "MessageCodec", "message_codec"]

M = TypeVar("M", bound=Message)
UNBOUNDED = 2**62
_UNFIT = (struct.error, IndexError, ValueError, OverflowError, TypeError, AttributeError)


# --- what the generated code calls ------------------------------------------------------------------------------------


def skip_tags(buf: BytesLike, pos: int, end: int, count: int) -> int:
    """The position after a block of `count` unknown tagged fields."""
    if count >= 0x80:
        count, pos = more(buf, pos, count)
    for _ in range(count):
        pos, _, stop = read_tag(buf, pos, end)
        pos = stop
    return pos


def read_tag(buf: BytesLike, pos: int, end: int) -> tuple[int, int, int]:
    """The head of a tagged field: (position of its value, number, end of its value)."""
    number = buf[pos]
    pos += 1
    if number >= 0x80:
        number, pos = more(buf, pos, number)
    size = buf[pos]
    pos += 1
    if size >= 0x80:
        size, pos = more(buf, pos, size)
    if pos + size > end:
        raise ProtocolError("tagged field beyond the end of the message")
    return pos, number, pos + size


def bad_length(size: int) -> None:
    raise ProtocolError(f"length {size}")


def bad_count(count: int) -> None:
    raise ProtocolError(f"{count} elements in too few bytes")


def too_many() -> None:
    raise ProtocolError("more array elements than a message may have")


def bad_tag(name: str) -> None:
    raise ProtocolError(f"tagged field {name} is shorter than its size")


def absent(name: str) -> None:
    raise ProtocolError(f"{name} does not exist in this version")


@functools.lru_cache(maxsize=512)
def run_of(code: str, count: int) -> struct.Struct:
    """A struct of `count` numbers; integer arrays are short and come in few lengths."""
    return struct.Struct(f">{count}{code}")


# The bytes of one-byte lengths and counts.
ONE = tuple(bytes((value,)) for value in range(256))

_RUNTIME = {
    "more": more, "uvarint": uvarint, "skip_tags": skip_tags, "read_tag": read_tag, "bad_length": bad_length,
    "bad_count": bad_count, "bad_tag": bad_tag, "too_many": too_many, "absent": absent, "run_of": run_of, "bool": bool,
    "ONE": ONE,
}  # fmt: skip


# --- shape of constructs ----------------------------------------------------------------------------------------------


def _plain(con: C.Construct) -> C.Construct:
    return con.subcon if isinstance(con, C.Renamed) else con


def _code(con: C.Construct) -> str | None:
    """The struct code of a fixed-size construct, None for the others."""
    if isinstance(con, C.FormatField):
        return str(con.fmtstr[1:])
    if isinstance(con, C.Bytes):
        return f"{con.length}s"
    return None


def _fixed_codes(entity: Entity) -> list[str] | None:
    """The struct codes of a structure whose untagged fields are all of fixed size."""
    codes = [_code(_plain(subcon)) for subcon in entity.subcons]
    return None if not codes or None in codes else [c for c in codes if c]


class _Source:
    """The lines of a function under construction, and the constants that they use."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = dict(_RUNTIME)
        self._constants: dict[Any, str] = {}
        self._count = 0

    def fresh(self, stem: str = "x") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: Any) -> str:
        key = (stem, id(value))
        if key not in self._constants:
            self._constants[key] = name = self.fresh(stem)
            self.names[name] = value
        return self._constants[key]

    def packer(self, stem: str, fmt: str) -> str:
        """The bound method of the Struct for this format."""
        key = (stem, fmt)
        if key not in self._constants:
            self._constants[key] = name = self.fresh(stem)
            self.names[name] = getattr(
                struct.Struct(">" + fmt), {"U": "unpack_from", "P": "pack", "I": "iter_unpack"}[stem]
            )
        return self._constants[key]

    def default(self, value: Any) -> str:
        """An expression for a default: literals stay literals, an empty list is created each time."""
        if value is None or isinstance(value, (bool, int, str, bytes)) or value == []:
            return repr(value)
        return self.constant("D", value)

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def function(self, head: str) -> Callable[..., Any]:
        body = "\n".join([head, *self.lines])
        exec(compile(body, "<wire.codegen>", "exec"), self.names)
        made: Callable[..., Any] = self.names[head.split("(")[0].split()[-1]]
        return made


# --- decode -----------------------------------------------------------------------------------------------------------


class _Decoder(_Source):
    def __init__(self) -> None:
        super().__init__()
        self.run: list[tuple[str, str]] = []  # (struct code, variable) not read yet

    def flush(self) -> None:
        if not self.run:
            return
        if len(self.run) == 1 and self.run[0][0] == "B":  # most often a length: indexing is fastest
            self.add(f"{self.run.pop()[1]} = buf[pos]; pos += 1")
            return
        codes = "".join(code for code, _ in self.run)
        targets = ", ".join(name for _, name in self.run)
        comma = "," if len(self.run) == 1 else ""
        self.add(f"{targets}{comma} = {self.packer('U', codes)}(buf, pos)")
        self.add(f"pos += {struct.calcsize('>' + codes)}")
        self.run.clear()

    def length(self, con: Text | Blob | Seq) -> str:
        """Read a length prefix; afterwards the variable holds the length, -1 for null."""
        n = self.fresh("n")
        if con.compact:
            self.run.append(("B", n))
            self.flush()
            self.add(f"if {n} > 127: {n}, pos = more(buf, pos, {n})")
            self.add(f"{n} -= 1")
        else:
            self.run.append(("h" if isinstance(con, Text) else "i", n))
            self.flush()
        self.add(f"if {n} < {-1 if con.nullable else 0}: bad_length({n})")
        return n

    def value(self, con: C.Construct) -> str:
        """Emit code that reads a value. Returns the expression that holds it after the next flush."""
        con = _plain(con)
        code = _code(con)
        if code is not None:
            x = self.fresh()
            self.run.append((code, x))
            return x
        if isinstance(con, (Text, Blob)):
            return self.chunk(con)
        if isinstance(con, Seq):
            return self.sequence(con)
        if isinstance(con, Entity):
            return self.entity(con)
        if isinstance(con, NullableStruct):
            return self.nullable(con)
        raise TypeError(f"cannot generate {con!r}")

    def chunk(self, con: Text | Blob) -> str:
        n, x = self.length(con), self.fresh()
        piece = f"buf[pos:pos + {n}]"
        if isinstance(con, Text):
            expression = f"str({piece}, 'utf-8')"
        elif con.view:
            expression = f"memoryview(buf)[pos:pos + {n}]"
        else:
            expression = f"bytes({piece})"
        if con.nullable:
            self.add(f"if {n} < 0: {x} = None")
            self.add("else:")
            self.depth += 1
        self.add(f"{x} = {expression}; pos += {n}")
        if con.nullable:
            self.depth -= 1
        return x

    def sequence(self, con: Seq) -> str:
        n, x = self.length(con), self.fresh("l")
        if con.nullable:
            self.add(f"if {n} < 0: {x} = None")
            self.add("else:")
            self.depth += 1
        self.add(f"if {n} > end - pos: bad_count({n})")
        self.add(f"room -= {n}")
        self.add("if room < 0: too_many()")
        element = _plain(con.subcon)
        code = _code(element)
        if code is not None and len(code) == 1:
            s = self.fresh("s")
            self.add(f"{s} = run_of({code!r}, {n}); {x} = list({s}.unpack_from(buf, pos)); pos += {s}.size")
        elif isinstance(element, Entity) and (codes := _fixed_codes(element)):
            self.fixed_elements(element, codes, n, x)
        else:
            self.elements(element, n, x)
        if con.nullable:
            self.depth -= 1
        return x

    def fixed_elements(self, entity: Entity, codes: list[str], n: str, x: str) -> None:
        """Read structures of fixed size with one `iter_unpack`, provided that every tag block is empty."""
        names = [self.fresh() for _ in codes]
        pad = "x" if entity.flexible else ""
        size = struct.calcsize(">" + "".join(codes) + pad)
        values = dict(zip([s.name for s in entity.subcons], names, strict=True))
        stop = self.fresh("e")
        self.add(f"{stop} = pos + {n} * {size}")
        check = f"{stop} <= end"
        if entity.flexible:
            check += f" and bytes(buf[pos + {size - 1}:{stop}:{size}]).count(0) == {n}"
        self.add(f"if {check}:")
        unpacker = self.packer("I", "".join(codes) + pad)
        target = ", ".join(names) + ("," if len(names) == 1 else "")
        self.add(f"    {x} = [{self.call(entity, values)} for {target} in {unpacker}(buf[pos:{stop}])]; pos = {stop}")
        self.add("else:")
        self.depth += 1
        self.elements(entity, n, x)
        self.depth -= 1

    def elements(self, element: C.Construct, n: str, x: str) -> None:
        append = self.fresh("a")
        self.add(f"{x} = []; {append} = {x}.append")
        self.add(f"for _ in range({n}):")
        self.depth += 1
        value = self.value(element)
        self.flush()
        self.add(f"{append}({value})")
        self.depth -= 1

    def nullable(self, con: NullableStruct) -> str:
        mark, x = self.fresh("m"), self.fresh()
        self.run.append(("b", mark))
        self.flush()
        self.add(f"if {mark} < 0: {x} = None")
        self.add("else:")
        self.depth += 1
        value = self.value(con.subcon)
        self.flush()
        self.add(f"{x} = {value}")
        self.depth -= 1
        return x

    def call(self, entity: Entity, values: dict[str, str]) -> str:
        """An expression that constructs a structure: positional, which is fastest, and without trailing defaults."""
        given = [values.get(name) for name in entity.cls.__struct_fields__]
        while given and given[-1] is None:
            given.pop()
        fields = zip(entity.cls.__struct_fields__, given, strict=False)
        arguments = [self.default(entity.defaults[name]) if value is None else value for name, value in fields]
        return f"{self.constant('C', entity.cls)}({', '.join(arguments)})"

    def entity(self, entity: Entity) -> str:
        values = {subcon.name: self.value(subcon) for subcon in entity.subcons}
        if entity.flexible:
            t = self.fresh("t")
            self.run.append(("B", t))
            self.flush()
            if entity.tagged:
                self.tags(entity, t, values)
            else:
                self.add(f"if {t}: pos = skip_tags(buf, pos, end, {t})")
        self.flush()
        x = self.fresh("o")
        self.add(f"{x} = {self.call(entity, values)}")
        return x

    def tags(self, entity: Entity, t: str, values: dict[str, str]) -> None:
        for name, _ in entity.tagged.values():
            values[name] = x = self.fresh("g")
            self.add(f"{x} = {self.default(entity.defaults[name])}")
        number, stop = self.fresh("k"), self.fresh("e")
        self.add(f"if {t}:")
        self.depth += 1
        self.add(f"if {t} > 127: {t}, pos = more(buf, pos, {t})")
        self.add(f"for _ in range({t}):")
        self.depth += 1
        self.add(f"pos, {number}, {stop} = read_tag(buf, pos, end)")
        for i, (tag, (name, con)) in enumerate(sorted(entity.tagged.items())):
            self.add(f"{'if' if i == 0 else 'elif'} {number} == {tag}:")
            self.depth += 1
            value = self.value(con)
            self.flush()
            self.add(f"if pos != {stop}: bad_tag({name!r})")
            self.add(f"{values[name]} = {value}")
            self.depth -= 1
        self.add(f"else: pos = {stop}")
        self.depth -= 2


# --- encode -----------------------------------------------------------------------------------------------------------


class _Encoder(_Source):
    def __init__(self) -> None:
        super().__init__()
        self.run: list[tuple[str, str]] = []  # (struct code, expression) not written yet; no expression for padding
        self.sink = "put"

    def pack(self, extra: tuple[str, str] | None = None) -> str:
        run = [*self.run, extra] if extra else self.run
        if len(run) == 1 and run[0][0] in "Bx":
            return f"ONE[{run[0][1] or 0}]"
        codes = "".join(code for code, _ in run)
        return f"{self.packer('P', codes)}({', '.join(e for _, e in run if e)})"

    def flush(self) -> None:
        if self.run:
            self.add(f"{self.sink}({self.pack()})")
            self.run.clear()

    def length(self, n: str, con: Text | Blob | Seq) -> None:
        """Write the pending run and a length prefix; `n` is a variable, -1 for null."""
        if not con.compact:
            self.run.append(("h" if isinstance(con, Text) else "i", n))
            self.flush()
            return
        self.add(f"if {n} < 127: {self.sink}({self.pack(('B', n + ' + 1'))})")
        run = f"{self.pack()} + " if self.run else ""
        self.add(f"else: {self.sink}({run}uvarint({n} + 1))")
        self.run.clear()

    def value(self, con: C.Construct, expression: str) -> None:
        con = _plain(con)
        code = _code(con)
        if code is not None:
            if code.endswith("s"):  # struct would cut or pad a value of another length
                x = self.fresh()
                self.add(f"{x} = {expression}")
                self.add(f"if len({x}) != {code[:-1]}: bad_length(len({x}))")
                expression = x
            elif code == "?":
                expression = f"bool({expression})"
            self.run.append((code, expression))
        elif isinstance(con, (Text, Blob)):
            self.chunk(con, expression)
        elif isinstance(con, Seq):
            self.sequence(con, expression)
        elif isinstance(con, Entity):
            self.entity(con, expression)
        elif isinstance(con, NullableStruct):
            self.nullable(con, expression)
        else:
            raise TypeError(f"cannot generate {con!r}")

    def chunk(self, con: Text | Blob, expression: str) -> None:
        x, n = self.fresh(), self.fresh("n")
        encode = ".encode()" if isinstance(con, Text) else ""
        if con.nullable:
            self.add(f"{x} = {expression}")
            self.add(f"if {x} is None: {n} = -1")
            self.add(f"else: {x} = {x}{encode}; {n} = len({x})" if encode else f"else: {n} = len({x})")
        else:
            self.add(f"{x} = {expression}{encode}; {n} = len({x})")
        self.length(n, con)
        self.add(f"if {n} > 0: {self.sink}({x})")

    def sequence(self, con: Seq, expression: str) -> None:
        x, n = self.fresh("l"), self.fresh("n")
        self.add(f"{x} = {expression}")
        self.add(f"{n} = -1 if {x} is None else len({x})" if con.nullable else f"{n} = len({x})")
        self.length(n, con)
        element = _plain(con.subcon)
        code = _code(element)
        self.add(f"if {n} > 0:")
        self.depth += 1
        if code is not None and len(code) == 1:
            self.add(f"{self.sink}(run_of({code!r}, {n}).pack(*{x}))")
        else:
            item = self.fresh("i")
            self.add(f"for {item} in {x}:")
            self.depth += 1
            self.value(element, item)
            self.flush()
            self.depth -= 1
        self.depth -= 1

    def nullable(self, con: NullableStruct, expression: str) -> None:
        x = self.fresh("o")
        self.flush()
        self.add(f"{x} = {expression}")
        self.add(f"if {x} is None: {self.sink}(b'\\xff')")
        self.add("else:")
        self.depth += 1
        self.add(f"{self.sink}(b'\\x01')")
        self.value(con.subcon, x)
        self.flush()
        self.depth -= 1

    def entity(self, entity: Entity, expression: str) -> None:
        x = self.fresh("o")
        self.add(f"{x} = {expression}")
        for name, droppable in entity.absent.items():
            if not droppable:
                self.add(
                    f"if {self.differs(entity, name, f'{x}.{name}')}: absent({entity.cls.__name__ + '.' + name!r})"
                )
        for subcon in entity.subcons:
            self.value(subcon, f"{x}.{subcon.name}")
        if not entity.flexible:
            return
        if entity.tagged:
            self.tags(entity, x)
        else:
            self.run.append(("x", ""))

    def differs(self, entity: Entity, name: str, expression: str) -> str:
        default = entity.defaults[name]
        if default is None:
            return f"{expression} is not None"
        return f"{expression} != {self.default(default)}"

    def tags(self, entity: Entity, x: str) -> None:
        self.flush()
        block, parts = self.fresh("b"), self.fresh("q")
        outer = self.sink
        self.add(f"{block} = None")
        for tag, (name, con) in sorted(entity.tagged.items()):
            self.add(f"if {self.differs(entity, name, f'{x}.{name}')}:")
            self.depth += 1
            self.add(f"{parts} = []")
            self.sink = f"{parts}.append"
            self.value(con, f"{x}.{name}")
            self.flush()
            self.sink = outer
            self.add(f"{parts} = b''.join({parts})")
            self.add(f"if {block} is None: {block} = []")
            self.add(f"{block}.append({uvarint(tag)!r} + uvarint(len({parts})) + {parts})")
            self.depth -= 1
        self.add(f"{outer}(b'\\x00' if {block} is None else uvarint(len({block})) + b''.join({block}))")


# --- the interface ----------------------------------------------------------------------------------------------------


def _decoder(entity: Entity) -> Callable[[BytesLike, int, int, int], tuple[Any, int]]:
    source = _Decoder()
    value = source.entity(entity)
    source.add("if pos > end: bad_length(pos - end)")
    source.add(f"return {value}, pos")
    return source.function("def decode(buf, pos, end, room):")


def _encoder(entity: Entity) -> Callable[[Any, Callable[[SizedChunk], None]], None]:
    source = _Encoder()
    source.entity(entity, "obj")
    source.flush()
    if not source.lines:
        source.add("pass")
    return source.function("def encode(obj, put):")


class MessageCodec(Generic[M]):
    """Generated functions for one message in one version."""

    __slots__ = ("_decode", "_encode", "cls", "version")

    def __init__(self, cls: type[M], entity: Entity, version: int) -> None:
        self.cls, self.version = cls, version
        self._decode = _decoder(entity)
        self._encode = _encoder(entity)

    def decode(self, buf: BytesLike, pos: int = 0, max_elements: int = UNBOUNDED) -> tuple[M, int]:
        """Parse the message that begins at `pos`. Returns the message and the position after it.

        Record data comes as views into `buf`. Raises ProtocolError for anything invalid, and for more than
        `max_elements` in all arrays together.
        """
        try:
            return self._decode(buf, pos, len(buf), max_elements)
        except ProtocolError:
            raise
        except _UNFIT as error:
            raise ProtocolError(f"{self.cls.__name__} v{self.version}: {error}") from None

    def encode(self, message: M) -> list[SizedChunk]:
        """The message as chunks whose concatenation is its wire form. Record data is passed on unchanged.

        Raises ProtocolError for values that this version cannot carry.
        """
        chunks: list[SizedChunk] = []
        try:
            self._encode(message, chunks.append)
        except ProtocolError:
            raise
        except _UNFIT as error:
            raise ProtocolError(f"{self.cls.__name__} v{self.version}: {error}") from None
        return chunks

    def parse(self, data: BytesLike) -> M:
        """`decode` from the start, without the position."""
        return self.decode(data)[0]

    def build(self, message: M) -> bytes:
        """`encode`, joined. Only for messages whose record data, if any, is bytes-like."""
        return b"".join(self.encode(message))  # type: ignore[arg-type]


_codecs: dict[tuple[type[Message], int], MessageCodec[Any]] = {}


def message_codec(cls: type[M], version: int) -> MessageCodec[M]:
    """The generated codec of a message in one version, made on first use.

    Raises ProtocolError if Kafka has no such version of the message.
    """
    made = _codecs.get((cls, version))
    if made is None:
        made = _codecs[cls, version] = MessageCodec(cls, schema(cls, version), version)
    return made


class Compiled(C.Construct):
    """The construct interface to the generated functions: the result of `schema(...).compile()`."""

    def __init__(self, entity: Entity) -> None:
        super().__init__()
        self.codec: MessageCodec[Any] = MessageCodec(entity.cls, entity, -1)

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> Any:
        start = stream.tell()
        value, pos = self.codec.decode(stream.getvalue(), start)
        stream.seek(pos)
        return value

    def _build(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> Any:
        stream.write(self.codec.build(obj))
        return obj
