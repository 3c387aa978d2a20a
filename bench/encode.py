"""Arrow rows to record batches: millions of records a second on one core, CRC included.

    python -m bench.encode [--records 1000000] [--rounds 5] [--json FILE]

Rows with a key of 8 bytes and a value of 100 or 180, in Arrow batches of 16,384 rows. The result is the best round:
other work on the machine can only make a round slower.
"""

from __future__ import annotations

import time

import pyarrow as pa

from barnabas.streams.encode import batches, encode
from barnabas.streams.encode.batches import Backend
from barnabas.streams.encode.python import writer_in_python
from barnabas.wire.compression import CompressionType
from bench.readings import options, show

ROWS = 16_384


def rows_of(value_bytes: int) -> pa.RecordBatch:
    """`ROWS` rows, like those of a query over JSON records."""
    return pa.record_batch(
        {
            "offset": pa.array(range(ROWS), pa.int64()),
            "timestamp": pa.array(range(1_700_000_000_000, 1_700_000_000_000 + ROWS), pa.timestamp("ms", "UTC")),
            "key": pa.array([b"%08d" % (n % 1000) for n in range(ROWS)]),
            "value": pa.array([b'{"seq":%d,"note":"' % n + b"x" * (value_bytes - 30) for n in range(ROWS)]),
        }
    )


def rate(rows: pa.RecordBatch, records: int, rounds: int, max_bytes: int, codec: CompressionType) -> float:
    """Records a second in the fastest of `rounds` passes over about `records` records."""
    best = 0.0
    passes = max(1, records // ROWS)
    for _ in range(rounds):
        began = time.perf_counter()
        count = sum(
            one.count
            for _ in range(passes)
            for one in encode(rows, base_offset=0, max_bytes=max_bytes, compression=codec)
        )
        best = max(best, count / (time.perf_counter() - began))
    return best


def main() -> None:
    """Measure and print."""
    args = options(__doc__, records=1_000_000, rounds=5).parse_args()
    backends: dict[str, Backend] = {"python": writer_in_python}
    try:
        from barnabas.streams.encode.native import writer_in_c
    except ImportError:
        print("The encoder in C is not built.")
    else:
        backends["native"] = writer_in_c
    figures: list[dict[str, object]] = []
    for value, codec, size in (
        (100, CompressionType.NONE, 16 << 10),
        (100, CompressionType.NONE, 1 << 20),
        (180, CompressionType.NONE, 1 << 20),
        (180, CompressionType.LZ4, 1 << 20),
        (180, CompressionType.ZSTD, 1 << 20),
    ):
        rows = rows_of(value)
        for name, backend in backends.items():
            batches.backend = lambda backend=backend: backend  # type: ignore[assignment]
            found = rate(rows, args.records if name == "native" else args.records // 10, args.rounds, size, codec)
            figures.append(
                {
                    "encoder": name,
                    "value bytes": value,
                    "codec": codec.name.lower(),
                    "batch KiB": size >> 10,
                    "M records/s": found / 1e6,
                }
            )
    show(figures, args.json)


if __name__ == "__main__":
    main()
