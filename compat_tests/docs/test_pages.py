"""Every page of the docs is read from top to bottom, and its blocks are run."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.broker_process import Barnabas
from compat_tests.conftest import stopped_well
from compat_tests.docs.blocks import Block, Page, pages
from compat_tests.docs.machine import Machine, lacking_for
from compat_tests.docs.reader import Reader, no_spark, not_run, starts_broker
from compat_tests.docs.scenarios import SCENARIOS, Scenario
from compat_tests.docs.servers import MISSING, SERVERS
from compat_tests.examples.running import EXAMPLES
from compat_tests.query_topics.conftest import SETTINGS
from compat_tests.tools import ROOT

#: Commands that need the Spark extra, and slow ones: a JVM with Spark, a new database.
_SPARK = re.compile(r"CREATE (TOPIC|STREAM) .* AS\b|barnabas\.query|pyspark|barnabas (sql|export)", re.S)
_LONG = re.compile(r"CREATE STREAM|pyspark|barnabas export|mariadb-install-db")


def parts(page: Page) -> Iterator[tuple[Scenario, list[Block]]]:
    """The scenarios of a page with their blocks."""
    scenarios = SCENARIOS.get(page.name, (Scenario(),))
    named = {section for scenario in scenarios for section in scenario.sections}
    for scenario in scenarios:
        mine = [each for each in page.blocks if each.section in (scenario.sections or {each.section} - named)]
        yield scenario, mine


def cases() -> Iterator[object]:
    for page in pages().values():
        for scenario, blocks in parts(page):
            run = [block for block in blocks if block.language != "text" and not not_run(block)]
            if run:
                is_long = scenario.long or any(_LONG.search(block.text) for block in run)
                name = ":".join((page.name, *scenario.sections[:1]))
                yield pytest.param(scenario, blocks, id=name, marks=[pytest.mark.long] if is_long else [])


def _makes_streams(blocks: list[Block]) -> bool:
    return any("CREATE STREAM" in block.text for block in blocks) and not starts_broker(blocks)


@pytest.fixture(scope="module")
def streams_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    """A broker and its Spark for several pages; each page finds it without topics."""
    server = Barnabas(tmp_path_factory.mktemp("streams"), SETTINGS)
    server.expected_errors.append("was deleted: drop this stream")  # topics are deleted before their streams
    server.start()
    yield server
    stopped_well([server])


@pytest.mark.parametrize(("scenario", "blocks"), list(cases()))
def test_page(scenario: Scenario, blocks: list[Block], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if any(_SPARK.search(block.text) for block in blocks) and (reason := no_spark()):
        pytest.skip(reason)
    if reason := lacking_for("".join(block.text for block in blocks if block.language == "sh")):
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        machine = Machine(tmp_path)
        stack.callback(machine.close)
        if (folder := (ROOT / blocks[0].page).parent).is_relative_to(EXAMPLES):
            shutil.copytree(folder, machine.home, dirs_exist_ok=True)
        shares = scenario.shares_streams or _makes_streams(blocks)
        if shares:
            broker: Barnabas = request.getfixturevalue("streams_broker")
            machine.ports["9092"] = str(broker.port)
            stack.callback(lambda: machine.bash.run("barnabas topics ls --names | xargs -r barnabas topics rm"))
        for name in scenario.servers:
            if lacks := MISSING[name]():
                pytest.skip(lacks)
            stack.enter_context(SERVERS[name](machine))
        reader = Reader(scenario, machine, has_broker=shares)
        reader.read(blocks)
        reader.close()
    if reader.left_out:
        pytest.skip("; ".join(reader.left_out))
