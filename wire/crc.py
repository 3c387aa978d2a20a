"""CRC-32C (RFC 3720, appendix B.4), the checksum of record batches.

The function is in the C extension of the crc32c package. The package itself looks up its own version in its metadata,
which takes a tenth of a broker's whole start, so the extension is loaded directly. This relies on an internal detail
(docs/decisions/0020-private-doors.md); if that changes, the package's function is used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

Crc = Callable[..., int]

_PACKAGE = "crc32c"
_EXTENSION = "crc32c._crc32c"
_CHECK_VALUE = 0xE3069283


def _of_extension() -> Crc | None:
    """The extension's function, without its package; None if this crc32c has it elsewhere."""
    package = PathFinder.find_spec(_PACKAGE)
    spec = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations) if package else None
    if _PACKAGE in sys.modules or spec is None or spec.loader is None:
        return None
    try:
        module = sys.modules[_EXTENSION] = module_from_spec(spec)
        spec.loader.exec_module(module)
        found: Crc = module.crc32c
        if found(b"6789", found(b"12345")) == _CHECK_VALUE:
            return found
    except (ImportError, AttributeError, TypeError):
        pass
    sys.modules.pop(_EXTENSION, None)  # the package loads it again, if it has one
    return None


def _of_package() -> Crc:
    found: Crc = importlib.import_module(_PACKAGE).crc32c
    return found


#: The checksum of bytes; the second argument may be the checksum of the bytes before them.
crc32c: Crc = _of_extension() or _of_package()
