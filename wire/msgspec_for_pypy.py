"""The part of msgspec that the broker uses, in Python: for PyPy, for which msgspec's C module cannot be built.

`barnabas/__init__.py` gives this module to `import msgspec` under PyPy only. Structures are the standard library's
data classes, and JSON is the standard library's. This module adds the conversion to types. It is as strict as
msgspec's, with the same errors; only the text about malformed JSON and about keys differs. A test compares both
(wire/tests/test_msgspec_for_pypy.py). MessagePack and the options that only the streams driver uses are left out: the
driver needs CPython.

Source of the behaviour: https://jcristharif.com/msgspec/
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import json as _json
import math
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json.encoder import encode_basestring
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

T = TypeVar("T")
Convert = Callable[[Any], Any]


class MsgspecError(Exception):
    """The base of all errors."""


class DecodeError(MsgspecError):
    """The text is not JSON."""


class ValidationError(DecodeError):
    """The JSON does not have the type. The text ends with the place, as in `$.topics[3].name`."""

    def __init__(self, why: str) -> None:
        self.why, self.place = why, ""
        super().__init__(why)

    def __str__(self) -> str:
        return f"{self.why} - at `${self.place}`" if self.place else self.why


class _NoDefault:
    def __repr__(self) -> str:
        return "NODEFAULT"


NODEFAULT = _NoDefault()


class Raw(bytes):
    """JSON that is passed on as it is."""


class _Options(NamedTuple):
    """The options that subclasses inherit."""

    frozen: bool = False
    omit_defaults: bool = False
    forbid_unknown_fields: bool = False
    array_like: bool = False
    tag: str | None = None


def field(*, default: Any = NODEFAULT, default_factory: Any = NODEFAULT, name: str | None = None) -> Any:
    """A field's default, and its name in JSON."""
    given: dict[str, Any] = {} if default is NODEFAULT else _default(default)
    if default_factory is not NODEFAULT:
        given["default_factory"] = default_factory
    return dataclasses.field(metadata={"name": name} if name is not None else {}, **given)


def _default(value: Any) -> dict[str, Any]:
    """An empty list, dict or set is made anew for each structure."""
    fresh = isinstance(value, list | dict | set) and not value
    return {"default_factory": type(value)} if fresh else {"default": value}


class _StructType(type):
    """Makes each class a data class, with msgspec's options."""

    options = _Options()

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        body: dict[str, Any],
        kw_only: bool = False,
        gc: bool = True,
        **options: Any,
    ) -> Any:
        for key in body.get("__annotations__", ()):
            if key in body and not isinstance(body[key], dataclasses.Field):
                body[key] = dataclasses.field(**_default(body[key]))
        made = super().__new__(mcls, name, bases, body)
        made.options = made.options._replace(**options)
        if bases:
            plain: Any = made
            dataclasses.dataclass(frozen=made.options.frozen, kw_only=kw_only, repr=False)(plain)
            # Positional fields come first.
            fields = sorted(dataclasses.fields(plain), key=lambda each: bool(each.kw_only))
            plain.__struct_fields__ = tuple(each.name for each in fields)
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **_: object) -> None:
        super().__init__(name, bases, body)


@dataclass_transform(field_specifiers=(field,))
class Struct(metaclass=_StructType):
    """A structure; see msgspec's own."""

    __struct_fields__: ClassVar[tuple[str, ...]]
    options: ClassVar[_Options]

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(shown)})"


def defstruct(name: str, fields: list[tuple[str, Any, Any]], **options: Any) -> Any:
    """A structure whose fields are known only now."""
    body = {key: default for key, _, default in fields}
    body["__annotations__"] = {key: hint for key, hint, _ in fields}
    return _StructType(name, (Struct,), body, **options)


def convert(value: Any, type: Any) -> Any:
    """The value of JSON as a type. Raises ValidationError."""
    return _converter(type)(value)


class structs:
    """`msgspec.structs`."""

    class FieldInfo(NamedTuple):
        """A field of a structure."""

        name: str
        encode_name: str
        default: Any
        default_factory: Any

    @staticmethod
    def replace(struct: Any, /, **changes: Any) -> Any:
        """A copy with other values for some fields."""
        return type(struct)(**{**structs.asdict(struct), **changes})

    @staticmethod
    def asdict(struct: Any) -> dict[str, Any]:
        """The fields by name."""
        return {name: getattr(struct, name) for name in struct.__struct_fields__}

    @staticmethod
    def fields(struct: Any) -> tuple[FieldInfo, ...]:
        """All fields, in the order of the constructor."""
        kind: Any = struct if isinstance(struct, type) else type(struct)
        by_name = {each.name: each for each in dataclasses.fields(kind)}
        return tuple(structs._info(by_name[name]) for name in kind.__struct_fields__)

    @staticmethod
    def _info(each: dataclasses.Field[Any]) -> FieldInfo:
        default, factory = (
            NODEFAULT if one is dataclasses.MISSING else one for one in (each.default, each.default_factory)
        )
        return structs.FieldInfo(each.name, each.metadata.get("name") or each.name, default, factory)


class json:
    """`msgspec.json`."""

    class Encoder:
        """Values to JSON."""

        def encode(self, value: Any) -> bytes:
            """The JSON of a value. Raises TypeError."""
            return json.encode(value)

    class Decoder(Generic[T]):
        """JSON to values of one type."""

        def __init__(self, type: Any = Any) -> None:
            self._type = type

        def decode(self, text: Any) -> T:
            """The value. Raises DecodeError."""
            found: T = json.decode(text, type=self._type)
            return found

    @staticmethod
    def encode(value: Any) -> bytes:
        """The JSON of a value. Raises TypeError."""
        return "".join(_encoded(value)).encode()

    @staticmethod
    def decode(text: Any, *, type: Any = Any) -> Any:
        """The value of a JSON text. Raises DecodeError."""
        if type is Raw:
            return Raw(text.encode() if isinstance(text, str) else text)
        try:
            told = text if isinstance(text, str) else bytes(text).decode()
            found = _decoder.decode(told)
            if "\\u" in told:
                json.encode(found)  # half of a surrogate pair is no text
        except ValidationError:
            raise
        except ValueError as error:
            raise DecodeError(f"JSON is malformed: {error}") from None
        return _converter(type)(found)


def _finite(text: str) -> float:
    if math.isinf(found := float(text)):
        raise ValidationError("Number out of range")
    return found


def _no_constant(text: str) -> None:
    raise ValueError(f"invalid character in {text}")


_decoder = _json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)


def _encoded(value: Any) -> Iterator[str]:
    """The JSON of a value, in pieces."""
    if value is None or isinstance(value, bool):
        yield {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, str):
        yield encode_basestring(value)
    elif isinstance(value, int):
        yield int.__repr__(value)
    elif isinstance(value, float):
        yield float.__repr__(value) if math.isfinite(value) else "null"
    elif isinstance(value, Raw):
        yield value.decode()
    elif isinstance(value, bytes | bytearray | memoryview):
        yield f'"{base64.b64encode(value).decode()}"'
    elif isinstance(value, Struct) and not value.options.array_like:
        yield from _object(_fields_of(value))
    elif isinstance(value, dict):
        yield from _object((_key(key), each) for key, each in value.items())
    elif isinstance(value, list | tuple | set | frozenset | Struct):
        values = structs.asdict(value).values() if isinstance(value, Struct) else value
        start = "["
        for each in values:
            yield start
            yield from _encoded(each)
            start = ","
        yield "[]" if start == "[" else "]"
    else:
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def _object(pairs: Any) -> Iterator[str]:
    start = "{"
    for key, value in pairs:
        yield f"{start}{encode_basestring(key)}:"
        yield from _encoded(value)
        start = ","
    yield "{}" if start == "{" else "}"


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int | float) and not isinstance(key, bool):
        return repr(key)
    raise TypeError("Only dicts with str-like or number-like keys are supported")


def _fields_of(value: Any) -> Iterator[tuple[str, Any]]:
    options = type(value).options
    if options.tag is not None:
        yield "type", options.tag
    for info in structs.fields(value):
        found = getattr(value, info.name)
        default = info.default_factory() if info.default_factory is not NODEFAULT else info.default
        if not options.omit_defaults or found != default:
            yield info.encode_name, found


@contextmanager
def _at(place: Any) -> Iterator[None]:
    """Put the place before that of an error from within."""
    try:
        yield
    except ValidationError as error:
        error.place = f"{place}{error.place}"
        raise


_NAMES: dict[Any, str] = {
    type(None): "null",
    dict: "object",
    list: "array",
    tuple: "array",
    set: "array",
    frozenset: "array",
}


def _name(kind: Any) -> str:
    """What a type is called in an error."""
    plain = get_origin(kind) or kind
    if isinstance(plain, type) and issubclass(plain, Struct):
        return "array" if plain.options.array_like else "object"
    return _NAMES.get(plain) or str(getattr(plain, "__name__", plain))


def _expected(name: str, value: Any) -> ValidationError:
    return ValidationError(f"Expected `{name}`, got `{_name(type(value))}`")


@functools.cache
def _converter(kind: Any) -> Convert:
    """A function from the value of JSON to a type. It raises ValidationError."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if kind is Raw:
        return lambda value: Raw(json.encode(value))
    if kind is None:
        kind = type(None)
    if origin in (Union, types.UnionType):
        return _of_union(arguments)
    if origin is Literal:
        return functools.partial(_of_literal, arguments)
    if kind is bytes:
        return _of_bytes
    if kind in (str, int, float, bool, type(None)):
        return functools.partial(_of_scalar, kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return functools.partial(_of_array_struct if kind.options.array_like else _of_struct, kind)
    if (origin or kind) is dict:
        return functools.partial(_of_dict, *(arguments or (Any, Any)))
    if origin is tuple and arguments[-1] is not Ellipsis:
        return functools.partial(_of_tuple, arguments)
    if (origin or kind) in (list, tuple, set, frozenset):
        return functools.partial(_of_sequence, origin or kind, arguments[0] if arguments else Any)
    raise TypeError(f"values of type {kind} are unsupported")


def _of_scalar(kind: type, value: Any) -> Any:
    if type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    raise _expected(_name(kind), value)


def _of_bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise _expected("bytes", value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValidationError("Invalid base64 encoded string") from None


def _of_literal(known: tuple[Any, ...], value: Any) -> Any:
    if value not in known:
        raise ValidationError(f"Invalid enum value {value!r}")
    return value


def _of_union(kinds: tuple[Any, ...]) -> Convert:
    """Each kind of JSON belongs to one member at most, or the members are structures with tags."""
    by_tag = {kind.options.tag: kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Struct)}
    others = [kind for kind in kinds if kind not in by_tag.values()]
    names = " | ".join([_name(kind) for kind in others] + ["object"] * bool(by_tag))

    def converted(value: Any) -> Any:
        if isinstance(value, dict) and by_tag:
            if len(by_tag) == 1:
                return _converter(next(iter(by_tag.values())))(value)
            return _converter(_tagged(by_tag, value))(value)
        for kind in others:
            if _fits(kind, value):
                return _converter(kind)(value)
        raise _expected(names, value)

    return converted


def _tagged(by_tag: dict[str | None, Any], value: dict[str, Any]) -> Any:
    if "type" not in value:
        raise ValidationError("Object missing required field `type`")
    with _at(".type"):
        if not isinstance(tag := value["type"], str):
            raise ValidationError("Expected `str`")
        if tag not in by_tag:
            raise ValidationError(f"Invalid value {tag!r}")
    return by_tag[tag]


def _fits(kind: Any, value: Any) -> bool:
    """Whether a value's kind of JSON is that of the type; the value within may still be wrong."""
    plain = get_origin(kind) or kind
    if plain in (Any, Raw):
        return True
    if plain is Literal:
        return value in get_args(kind)
    if plain is float:
        return type(value) in (int, float)
    if plain in (bytes, tuple, set, frozenset):
        return isinstance(value, str if plain is bytes else list)
    return type(value) is (type(None) if plain is None else plain)


def _of_sequence(kind: Callable[[Any], Any], each: Any, value: Any) -> Any:
    if not isinstance(value, list):
        raise _expected("array", value)
    return kind(_elements([each] * len(value), value))


def _of_tuple(kinds: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, list):
        raise _expected("array", value)
    if len(value) != len(kinds):
        raise ValidationError(f"Expected `array` of length {len(kinds)}")
    return tuple(_elements(kinds, value))


def _elements(kinds: Any, values: list[Any]) -> list[Any]:
    found = []
    for index, (kind, value) in enumerate(zip(kinds, values, strict=False)):
        with _at(f"[{index}]"):
            found.append(_converter(kind)(value))
    return found


def _of_dict(key_kind: Any, value_kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise _expected("object", value)
    found = {}
    for key, each in value.items():
        with _at("[...]"):
            found[_of_key(key_kind, key)] = _converter(value_kind)(each)
    return found


def _of_key(kind: Any, key: str) -> Any:
    if kind is not int:
        return _converter(kind)(key)
    try:
        return int(key)
    except ValueError:
        raise _expected("int", key) from None


@functools.cache
def _hints(kind: type[Struct]) -> dict[str, Any]:
    return get_type_hints(kind)


def _of_struct(kind: type[Struct], value: Any) -> Any:
    if not isinstance(value, dict):
        raise _expected("object", value)
    if kind.options.tag is not None and "type" in value:
        _tagged({kind.options.tag: kind}, value)
    infos, hints = structs.fields(kind), _hints(kind)
    given: dict[str, Any] = {}
    for info in infos:
        if info.encode_name in value:
            with _at(f".{info.encode_name}"):
                given[info.name] = _converter(hints[info.name])(value[info.encode_name])
        elif info.default is NODEFAULT and info.default_factory is NODEFAULT:
            raise ValidationError(f"Object missing required field `{info.encode_name}`")
    if kind.options.forbid_unknown_fields:
        known = {info.encode_name for info in infos} | ({"type"} if kind.options.tag is not None else set())
        if unknown := next((key for key in value if key not in known), None):
            raise ValidationError(f"Object contains unknown field `{unknown}`")
    return kind(**given)


def _of_array_struct(kind: type[Struct], value: Any) -> Any:
    if not isinstance(value, list):
        raise _expected("array", value)
    infos, hints = structs.fields(kind), _hints(kind)
    least = sum(info.default is NODEFAULT and info.default_factory is NODEFAULT for info in infos)
    if len(value) < least:
        raise ValidationError(f"Expected `array` of at least length {least}, got {len(value)}")
    found = _elements([hints[info.name] for info in infos], value)
    return kind(**{info.name: each for info, each in zip(infos, found, strict=False)})
