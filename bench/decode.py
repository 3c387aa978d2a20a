"""Record batches to Arrow: millions of records a second on one core, CRC check included.

    python -m bench.decode [--records 1000000] [--rounds 5] [--json FILE]

Records of about 180 bytes on the wire (key and JSON value), decoded from memory to the columns key, value, offset and
timestamp. The result is the best round: other work on the machine can only make a round slower.
"""

from __future__ import annotations

import time

from barnabas.streams.decode import Records, open_batch
from barnabas.streams.decode.arrow import Backend
from barnabas.streams.decode.python import decode_python
from barnabas.wire.batch import build_batch
from barnabas.wire.compression import CompressionType
from bench.readings import READING_BYTES, options, readings, show

COLUMNS = ("key", "value", "offset", "timestamp")
CHUNK = 4 << 20


def log_of(count: int, batch_bytes: int, codec: int) -> tuple[bytes, int]:
    """At least `count` records in batches of about `batch_bytes` uncompressed bytes, and the number of records."""
    each = max(1, batch_bytes // READING_BYTES)
    batches = [
        build_batch(readings(start, each), base_offset=start, compression=codec) for start in range(0, count, each)
    ]
    return b"".join(batches), len(batches) * each


def seconds(backend: Backend, data: bytes, rounds: int) -> float:
    """The seconds of the fastest of `rounds` passes over `data`."""
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        position = held = 0
        records: list[Records] = []
        while position < len(data):
            found, position = open_batch(data, position)
            if found is not None:
                records.append(found)
                held += len(found.data)
            if held >= CHUNK or position == len(data):
                backend(records, COLUMNS)
                records, held = [], 0
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    """Measure and print."""
    args = options(__doc__, records=1_000_000, rounds=5).parse_args()
    backends: dict[str, Backend] = {"python": decode_python}
    try:
        from barnabas.streams.decode.native import decode_native
    except ImportError:
        print("The decoder in C is not built.")
    else:
        backends["native"] = decode_native
    figures: list[dict[str, object]] = []
    for codec, size in (
        (CompressionType.NONE, 16 << 10),
        (CompressionType.NONE, 1 << 20),
        (CompressionType.LZ4, 1 << 20),
        (CompressionType.ZSTD, 1 << 20),
    ):
        for name, backend in backends.items():
            data, count = log_of(args.records if name == "native" else args.records // 10, size, codec)
            rate = count / seconds(backend, data, args.rounds)
            figures.append(
                {"decoder": name, "codec": codec.name.lower(), "batch KiB": size >> 10, "M records/s": rate / 1e6}
            )
    show(figures, args.json)


if __name__ == "__main__":
    main()
