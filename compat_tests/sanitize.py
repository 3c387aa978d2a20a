"""The tests of the C modules, built for AddressSanitizer and UndefinedBehaviorSanitizer: `make sanitize`.

The build uses a copy of the checkout, so that the installed modules stay as they are. Leak detection is off: CPython
keeps memory until it ends. Python's objects come from malloc, so that reads beyond a buffer are detected.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

from compat_tests.tools import ROOT

FLAGS = ["-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
TESTS = [
    "wire/tests/test_compact.py",
    "wire/tests/test_lines.py",
    "wire/tests/test_walk.py",
    "streams/tests/test_decode.py",
    "streams/tests/test_encode.py",
    "streams/tests/test_objects.py",
    "streams/tests/test_plain_json.py",
]
_SOURCES = ("barnabas", "wire", "storage", "groupcoord", "client", "broker", "streams", "pyproject.toml")


def main() -> int:
    """Build and run; returns the exit status of the tests."""
    compiler = os.environ.get("CC", "cc")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        if problem := _problem(compiler, copy):
            print(f"make sanitize: {problem}: nothing was tested")
            return 0
        for name in _SOURCES:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(
                    source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("*.so", "__pycache__")
                )
            else:
                shutil.copy(source, copy / name)
        for module in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]:
            _build(compiler, copy, module["name"], module["sources"])
        libraries = [_library(compiler, name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
        environment = {
            **os.environ,
            "LD_PRELOAD": ":".join(libraries),
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": folder,
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "900", *TESTS]
        return subprocess.run(command, cwd=copy, env=environment, check=False).returncode


def _problem(compiler: str, folder: Path) -> str | None:
    """Why the sanitizers cannot be used; None if they can."""
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    source = folder / "probe.c"
    source.write_text("int main(void) { return 0; }\n")
    made = subprocess.run(
        [compiler, *FLAGS, str(source), "-o", str(folder / "probe")], capture_output=True, check=False
    )
    if made.returncode or not os.path.isabs(_library(compiler, "libasan.so")):
        return f"the C compiler ({compiler}) has no sanitizers"
    return None


def _library(compiler: str, name: str) -> str:
    """The path of a library of the compiler; only its name if the compiler does not have it."""
    told = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return told.stdout.strip()


def _build(compiler: str, root: Path, module: str, sources: list[str]) -> None:
    target = root / (module.replace(".", "/") + sysconfig.get_config_var("EXT_SUFFIX"))
    include = f"-I{sysconfig.get_paths()['include']}"
    files = [str(root / source) for source in sources]
    subprocess.run([compiler, "-shared", "-fPIC", *FLAGS, include, *files, "-o", str(target), "-lm"], check=True)


if __name__ == "__main__":
    sys.exit(main())
