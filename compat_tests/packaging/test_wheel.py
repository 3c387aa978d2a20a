"""The wheel installs one package, `barnabas`, which works beside any other package of an environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.tools import ROOT, missing
from compat_tests.waiting import until

#: Top-level names that other packages may use in site-packages. Earlier versions of barnabas used all of them.
HOSTILE = ("broker", "client", "connect", "groupcoord", "scripts", "storage", "streams", "wire")
READ = """
import sys
from pyspark.sql import SparkSession
from barnabas.streams import register
from barnabas.streams.java import options

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", options(brief=True)).getOrCreate()
register(spark)
rows = spark.read.format("wal").option("topic", "greetings").load(sys.argv[1]).select("value").collect()
print("read", [bytes(row.value).decode() for row in rows])
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of `python -m build`, which builds the wheel from the source distribution and nothing else."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel and hostile packages; dependencies come from the tests' environment.

    Python searches a folder that a .pth file names, but does not read .pth files inside it. So the checkout, which a
    .pth file installs in the tests' environment, is not visible in the other one.
    """
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python")]
    subprocess.run(
        [*pip, "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)],
        check=True,
        timeout=120,
    )
    for name in HOSTILE:
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text(f"raise SystemExit('somebody else\\'s {name}')\n")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return place / "bin"


def run(command: list[str | Path], tmp_path: Path, given: str = "") -> str:
    """The output of a command of the environment; it runs in a folder of its own, and must succeed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(command[0])}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, input=given, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def served(installed: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a broker that the installed command runs, with its data in `tmp_path/data`."""
    said = tmp_path / "said"
    with said.open("w") as out:
        process = subprocess.Popen(
            [installed / "barnabas", "serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "data"],
            cwd=tmp_path,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: "is ready on" in said.read_text() or process.poll() is not None, "the broker is ready")
        text = said.read_text()
        assert "is ready on" in text, text
        yield text.split("is ready on ")[1].split(",")[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def test_the_wheel_holds_one_package_without_its_tests(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"barnabas"}
    assert not [name for name in names if "/tests/" in name or name.endswith((".c", ".h"))]
    pages = {path.name for path in (ROOT / "broker" / "http" / "static").iterdir()}
    assert {f"barnabas/broker/http/static/{name}" for name in pages} <= set(names)
    assert {"barnabas/py.typed", "barnabas/wire/_walk.pyi", "barnabas/streams/query/__main__.py"} <= set(names)


def test_the_source_archive_holds_what_a_wheel_is_built_from(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"barnabas/wire/_varint.h", "barnabas/wire/_walk.c", "LICENSE", "README.md"} <= names
    assert not [name for name in names if "/tests/" in name or name.split("/")[0] in HOSTILE]


def test_the_command_says_what_it_is(installed: Path, tmp_path: Path) -> None:
    assert run([installed / "barnabas", "--version"], tmp_path).startswith("barnabas ")
    assert "serve" in run([installed / "python", "-m", "barnabas", "--help"], tmp_path)


def test_a_broker_and_its_commands_run_beside_packages_of_the_same_names(
    installed: Path, served: str, tmp_path: Path
) -> None:
    command = installed / "barnabas"
    run([command, "produce", "-b", served, "greetings"], tmp_path, "hello\nworld\n")
    assert run([command, "consume", "-b", served, "greetings", "--from-beginning", "-e"], tmp_path) == "hello\nworld\n"
    assert "greetings" in run([command, "topics", "list", "-b", served], tmp_path)


@pytest.mark.long
def test_spark_reads_there_what_the_broker_has_written(installed: Path, served: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
    if reason := missing("java"):
        pytest.skip(reason)
    run([installed / "barnabas", "produce", "-b", served, "greetings"], tmp_path, "hello\nworld\n")
    (tmp_path / "program.py").write_text(READ)
    shown = run([installed / "python", "program.py", str(tmp_path / "data")], tmp_path)
    assert "read ['hello', 'world']" in shown
