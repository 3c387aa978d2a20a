from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.wire.crc import crc32c


def test_the_check_value_whole_and_in_two_parts() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(b"56789"), crc32c(b"1234")) == 0xE3069283


@pytest.mark.door
def test_it_is_the_function_of_the_package_and_does_not_import_that() -> None:
    program = """
import sys, barnabas.wire.crc
assert "crc32c" not in sys.modules and "importlib.metadata" not in sys.modules
import crc32c
assert crc32c.crc32c is barnabas.wire.crc.crc32c
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_package_that_came_first_serves() -> None:
    program = "import crc32c, barnabas.wire.crc; assert crc32c.crc32c is barnabas.wire.crc.crc32c"
    subprocess.run([sys.executable, "-c", program], check=True)


ELSEWHERE = "def find_spec(name, *_): return None if name == 'crc32c._crc32c' else before(name, *_)"
OF_ANOTHER_NAME = "def module_from_spec(spec): made = before(spec); return type(made)('crc32c._crc32c')"
OTHER_SUMS = "def module_from_spec(spec): made = before(spec); made.crc32c = lambda data, crc=0: 0; return made"


@pytest.mark.door
@pytest.mark.parametrize(
    "upstream",
    [
        f"before = PathFinder.find_spec\n{ELSEWHERE}\nPathFinder.find_spec = find_spec",
        f"before = util.module_from_spec\n{OF_ANOTHER_NAME}\nutil.module_from_spec = module_from_spec",
        f"before = util.module_from_spec\n{OTHER_SUMS}\nutil.module_from_spec = module_from_spec",
    ],
    ids=["the extension is elsewhere", "its function is elsewhere", "its function is another one"],
)
def test_where_the_extension_is_another_the_function_is_the_packages(upstream: str) -> None:
    """The package is imported with the real loader, because only the short way sees the changed one."""
    program = f"""
import sys
from importlib import util
from importlib.machinery import PathFinder
true = PathFinder.find_spec, util.module_from_spec
{upstream}
import importlib
import_module = importlib.import_module
def restored(name):
    PathFinder.find_spec, util.module_from_spec = true
    return import_module(name)
importlib.import_module = restored
from barnabas.wire.crc import crc32c
assert crc32c(b"56789", crc32c(b"1234")) == 0xE3069283
assert sys.modules["crc32c"].crc32c is crc32c
"""
    subprocess.run([sys.executable, "-c", program], check=True)
