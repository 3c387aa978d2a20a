from barnabas.wire.aliases import BytesLike

def check(
    records: BytesLike, start: int, count: int, base_timestamp: int, oldest: int, newest: int, keyed: bool, most: int, /
) -> tuple[int, tuple[tuple[int, int], ...], int]: ...
def find_time(
    records: BytesLike,
    count: int,
    base_timestamp: int,
    base_offset: int,
    append_time: int,
    stamped: bool,
    wanted: int,
    lo: int,
    hi: int,
    /,
) -> tuple[int, int] | None: ...
