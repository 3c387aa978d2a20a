"""Every block has a language and is run, or is listed with the reason; every command that a page names exists."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest

from compat_tests.docs.blocks import LANGUAGES, Block, blocks, pages
from compat_tests.docs.commands import mistake
from compat_tests.docs.reader import not_run
from compat_tests.docs.scenarios import NOT_RUN, SCENARIOS
from compat_tests.docs.session import statements
from compat_tests.docs.test_pages import parts
from compat_tests.tools import ROOT


def test_every_block_has_a_language_that_is_run() -> None:
    wrong = [f"{block}: {block.language or 'no language'}" for block in blocks() if block.language not in LANGUAGES]
    assert not wrong, f"the first word behind a fence is one of {', '.join(LANGUAGES)}"


def test_every_block_is_in_one_scenario() -> None:
    for page in pages().values():
        read = [block for _, part in parts(page) for block in part]
        assert sorted(read, key=lambda block: block.line) == list(page.blocks), page.name


def test_scenarios_are_of_pages_and_sections_that_are_there() -> None:
    for name, scenarios in SCENARIOS.items():
        assert pages()[name].blocks, name
        for scenario in scenarios:
            assert set(scenario.sections) <= set(pages()[name].sections), name


def test_what_is_not_run_is_there() -> None:
    for begun in NOT_RUN:
        assert any(block.text.startswith(begun) for block in blocks()), begun


@pytest.mark.parametrize("block", [block for block in blocks() if not_run(block) is not None], ids=str)
def test_what_is_not_run_is_shell_whose_files_and_targets_are_there(block: Block) -> None:
    assert block.language == "sh"
    for command in statements(block.text):
        words = shlex.split(command, comments=True)
        if words[0] == "make":
            done = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
        for word in words:
            if re.fullmatch(r"(docs|compat_tests|streams)/\S+", word):
                assert (ROOT / word).exists(), word


def test_commands_in_sentences_and_synopses_are_known() -> None:
    wrong = []
    for page in pages().values():
        named = [(line, span) for line, span in page.spans if span.startswith("barnabas ")]
        for block in page.blocks:
            if block.language == "text":
                lines = enumerate(block.text.splitlines(), block.line + 1)
                named += [(number, line) for number, line in lines if line.startswith("barnabas ")]
        wrong += [f"{page.name}:{line}: {said}" for line, command in named if (said := mistake(command))]
    assert not wrong
