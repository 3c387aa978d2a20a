from barnabas.wire.compression import Bytes

def parse(
    offsets: Bytes,
    data: Bytes,
    valid: Bytes | None,
    first: int,
    rows: int,
    names: tuple[bytes, ...],
    kinds: tuple[int, ...],
) -> tuple: ...  # type: ignore[type-arg]
