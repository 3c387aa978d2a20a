"""Record batches to Arrow: millions of records a second on one core, CRC check included.

    python -m bench.decode [--records 1000000] [--rounds 5] [--json FILE]

Records of about 180 bytes on the wire (key and JSON value), decoded from memory to the columns key, value, offset and
timestamp. The result is the best round: other work on the machine can only make a round slower.
"""

from __future__ import annotations

import argparse
import json
import time

from barnabas.streams.decode import Records, open_batch
from barnabas.streams.decode.arrow import Backend
from barnabas.streams.decode.python import decode_python
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.compression import CompressionType
from barnabas.wire.table import table

COLUMNS = ("key", "value", "offset", "timestamp")
CHUNK = 4 << 20


def log_of(count: int, batch_bytes: int, codec: int) -> tuple[bytes, int]:
    """At least `count` records in batches of about `batch_bytes` uncompressed bytes, and the number of records."""
    each = max(1, batch_bytes // 180)
    batches = []
    for start in range(0, count, each):
        records = [
            Record(
                b"%08d" % (n % 1000),
                b'{"device":"sensor-%06d","seq":%d,"temp":%.3f,"note":"%s"}'
                % (n % 1000, n, n % 400 / 10, b"x" * (100 - len(str(n)))),
                1_700_000_000_000 + n,
            )
            for n in range(start, start + each)
        ]
        batches.append(build_batch(records, base_offset=start, compression=codec))
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file, too")
    args = parser.parse_args()
    backends: dict[str, Backend] = {"python": decode_python}
    try:
        from barnabas.streams.decode.native import decode_native
    except ImportError:
        print("The decoder in C is not built.")
    else:
        backends["native"] = decode_native
    figures = []
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
    rows = [[f"{v:.2f}" if isinstance(v, float) else v for v in figure.values()] for figure in figures]
    print(table(list(figures[0]), rows))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
