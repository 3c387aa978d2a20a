from barnabas.wire.aliases import BytesLike

def write(
    rows: int, columns: tuple[tuple[bytes, int, BytesLike | None, BytesLike | None, BytesLike | None, int], ...]
) -> tuple[bytes, bytes]: ...
