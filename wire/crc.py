"""CRC-32C (RFC 3720, appendix B.4), as record batches carry it.

The function is in the C extension of the crc32c package. The package around it looks up its own version in its
metadata, which takes a tenth of a broker's whole start, so the extension is loaded without it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType

_EXTENSION = "crc32c._crc32c"


def _extension() -> ModuleType:
    package = PathFinder.find_spec("crc32c")
    spec = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations) if package else None
    if _EXTENSION in sys.modules or spec is None or spec.loader is None:
        return importlib.import_module(_EXTENSION)  # as any other; says so where there is none
    module = sys.modules[_EXTENSION] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: The checksum of bytes; with a second argument, of what gave that one and the bytes behind it.
crc32c: Callable[..., int] = _extension().crc32c
