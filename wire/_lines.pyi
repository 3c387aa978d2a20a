from barnabas.wire.aliases import BytesLike

def encode(
    lines: BytesLike,
    start: int,
    separator: bytes | None,
    null: bytes | None,
    headers: bytes,
    strip_cr: bool,
    most_records: int,
    most_bytes: int,
    /,
) -> tuple[bytes, int, int, bool]: ...
def fill(
    records: BytesLike,
    count: int,
    base_offset: int,
    base_timestamp: int,
    is_stamped: bool,
    append_time: int,
    position: int,
    most: int,
    parts: tuple[bytes | str, ...],
    /,
) -> tuple[bytes, int, int]: ...
