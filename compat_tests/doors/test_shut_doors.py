"""Without the private functions of libraries that it uses, the broker starts, takes records and serves them.

See docs/decisions/0020-private-doors.md. The doors of streams are in `streams/tests/test_doors.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.broker_process import Barnabas
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.driver import Record

pytestmark = pytest.mark.door

# Imitates later versions of the libraries: changes them before the broker imports them.
SHUT = """
import platform, sys, cramjam, trio
from importlib.machinery import PathFinder
from types import SimpleNamespace

find_spec = PathFinder.find_spec
def elsewhere(name, *more):
    return None if name == "crc32c._crc32c" and "crc32c" not in sys.modules else find_spec(name, *more)
PathFinder.find_spec = elsewhere

def in_other_words(module):
    def decompress_into(data, out):
        try:
            return module.decompress_into(data, out)
        except cramjam.DecompressionError as error:
            raise cramjam.DecompressionError("no room") from error
    others = {name: getattr(module, name) for name in dir(module) if name[0] != "_"}
    return SimpleNamespace(**{**others, "decompress_into": decompress_into})
for codec in ("gzip", "lz4", "zstd"):
    setattr(cramjam, codec, in_other_words(getattr(cramjam, codec)))

sys.modules["trio._core._run"] = SimpleNamespace()
platform.machine = lambda: "sparc"

from barnabas.scripts.cli import main
sys.exit(main())
"""


class Shut(Barnabas):
    """A broker whose libraries have other internals."""

    def command(self) -> list[str]:
        python, _, _, *rest = super().command()
        return [python, "-c", SHUT, *rest]


def test_records_are_kept_and_served(tmp_path: Path) -> None:
    with Shut(tmp_path) as server:
        client = ConfluentDriver(server.address)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            # The compressed value is small; decompressed, it is larger than the buffer of the first attempt.
            written = [Record(b"x" * (100 if codec == "none" else 2_900_000), key=b"k")]
            client.create_topic(codec)
            client.produce(codec, written, codec=codec)
            read = client.consume(codec, len(written))
            assert [(record.key, record.value) for record in read] == [(record.key, record.value) for record in written]
        client.close()
        assert server.stop() == 0
        assert not server.errors()
        assert server.log_file.read_text().count("has other internals") == server.processes
