"""The vocabulary of the message definitions.

A message is a class, fully described by its annotations: the Python type is what code handles; the metadata inside
`Annotated` says how, and in which versions, it is sent. `wire.schema` turns a class and a version into a `construct`
tree, and `wire.codegen` turns that tree into flat functions.

    class FetchTopic(Struct):
        topic: Annotated[String, v[:12], ignorable] = ""
        topic_id: Annotated[Uuid, v[13:], ignorable] = ZERO_UUID
        partitions: list[FetchPartition] = []

Field defaults are Kafka's: zero, empty, or what the field's definition says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, dataclass_transform

import construct as C
import msgspec

Kind = Literal["text", "blob", "records"]
LATEST = 32767


class Versions(NamedTuple):
    """An inclusive range of message versions."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


class _VersionSlice:
    """`v[3:]`, `v[:12]`, `v[4:11]`: version ranges as Kafka writes them (`3+`, `0-12`, `4-11`); both ends included."""

    def __getitem__(self, key: slice | int) -> Versions:
        if isinstance(key, int):
            return Versions(key, key)
        return Versions(key.start or 0, LATEST if key.stop is None else key.stop)


v = _VersionSlice()


class Tag(NamedTuple):
    """The field travels in the tag block (KIP-482) under this number, in every version that has it."""

    number: int


class Nullable(NamedTuple):
    """Null is allowed in these versions only. Without it, `X | None` is nullable wherever the field exists."""

    versions: Versions


class _Ignorable:
    """The field is dropped in versions that lack it. Without this mark a value there that isn't the default raises."""


ignorable = _Ignorable()


class Primitive(NamedTuple):
    """A fixed-size value: the construct that reads and writes it."""

    construct: C.Construct


class Variable(NamedTuple):
    """A length-prefixed value."""

    kind: Kind


class SizedChunk(Protocol):
    """Anything that can stand for bytes in a response: its length is known, and the sender handles the rest."""

    def __len__(self) -> int: ...


Bool = Annotated[bool, Primitive(C.FormatField(">", "?"))]
Int8 = Annotated[int, Primitive(C.Int8sb)]
Int16 = Annotated[int, Primitive(C.Int16sb)]
UInt16 = Annotated[int, Primitive(C.Int16ub)]
Int32 = Annotated[int, Primitive(C.Int32sb)]
Int64 = Annotated[int, Primitive(C.Int64sb)]
Float64 = Annotated[float, Primitive(C.Float64b)]
Uuid = Annotated[bytes, Primitive(C.Bytes(16))]
String = Annotated[str, Variable("text")]
Bytes = Annotated[bytes, Variable("blob")]
# Record batches. Parsing gives a view into the frame, never a copy; building passes the chunk on unchanged.
Records = Annotated[SizedChunk, Variable("records")]

ZERO_UUID = bytes(16)


if TYPE_CHECKING:  # mypy must be told that subclasses are frozen, too

    @dataclass_transform(frozen_default=True)
    class Struct:
        """Base of every structure on the wire. Instances are immutable and hold no reference cycles."""

        __struct_fields__: ClassVar[tuple[str, ...]]

else:

    class Struct(msgspec.Struct, frozen=True, gc=False):
        """Base of every structure on the wire. Instances are immutable and hold no reference cycles."""


class Spec(NamedTuple):
    """What a message is: `key` is the API key (-1 for data), `versions` are Kafka's, `flexible` have tag blocks."""

    key: int
    versions: Versions
    flexible: Versions


class Message(Struct):
    """A top-level structure: a request, a response, or the key or value of a coordinator or metadata record."""

    __wire__: ClassVar[Spec]


NEVER = Versions(LATEST, -1)
M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=Struct)


def replace(struct: S, **fields: Any) -> S:
    """A copy with other values for some fields."""
    return msgspec.structs.replace(struct, **fields)  # type: ignore[type-var]


def message(*, key: int = -1, versions: Versions, flexible: Versions = NEVER) -> Callable[[type[M]], type[M]]:
    """Declare a message with the versions of Kafka 4.3, and the first of them that is flexible."""

    def mark(cls: type[M]) -> type[M]:
        cls.__wire__ = Spec(key, versions, flexible)
        return cls

    return mark
