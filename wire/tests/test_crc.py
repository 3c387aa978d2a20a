from __future__ import annotations

import subprocess
import sys

from barnabas.wire.crc import crc32c


def test_the_check_value_whole_and_in_two_parts() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(b"56789"), crc32c(b"1234")) == 0xE3069283


def test_it_is_the_function_of_the_package_and_does_not_import_that() -> None:
    program = """
import sys, wire.crc
assert "crc32c" not in sys.modules and "importlib.metadata" not in sys.modules
import crc32c
assert crc32c.crc32c is wire.crc.crc32c
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_package_that_came_first_serves() -> None:
    program = "import crc32c, wire.crc; assert crc32c.crc32c is wire.crc.crc32c"
    subprocess.run([sys.executable, "-c", program], check=True)
