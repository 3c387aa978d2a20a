from barnabas.wire.aliases import BytesLike

class KeyMap:
    def __init__(self, slots: int, most: int, secret: BytesLike, /) -> None: ...
    @property
    def count(self) -> int: ...
    def index(
        self, data: BytesLike, pos: int, low: int, high: int, start: int, end: int, /
    ) -> tuple[int, int, int, int]: ...
    def index_records(
        self, records: BytesLike, count: int, base_offset: int, last_offset: int, start: int, /
    ) -> tuple[int, bool]: ...
    def filter(
        self,
        data: BytesLike,
        pos: int,
        low: int,
        high: int,
        latest: int,
        now: int,
        horizon: int,
        lasts: BytesLike,
        /,
    ) -> tuple[bytes, int, int, int, int, int, int, int]: ...
    def filter_records(
        self,
        records: BytesLike,
        count: int,
        base_offset: int,
        last_offset: int,
        base_timestamp: int,
        max_timestamp: int,
        attributes: int,
        latest: int,
        now: int,
        horizon: int,
        /,
    ) -> tuple[bytes | None, int, int, int, int]: ...

def index_batches(
    data: BytesLike,
    base_offset: int,
    position: int,
    interval: int,
    since_entry: int,
    max_timestamp: int,
    max_timestamp_offset: int,
    indexed_timestamp: int,
    /,
) -> tuple[bytes, bytes, int, int, int, int]: ...
def siphash(secret: BytesLike, data: BytesLike, /) -> bytes: ...
def crc_by_tables(data: BytesLike, /) -> int: ...
