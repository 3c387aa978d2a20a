from barnabas.wire.aliases import BytesLike

def parse(
    offsets: BytesLike,
    data: BytesLike,
    valid: BytesLike | None,
    first: int,
    rows: int,
    names: tuple[bytes, ...],
    kinds: tuple[int, ...],
) -> tuple: ...  # type: ignore[type-arg]
