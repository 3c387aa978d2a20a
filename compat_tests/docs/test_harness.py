"""The reader of pages detects errors in a page."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest

from compat_tests.docs import blocks
from compat_tests.docs.commands import mistake
from compat_tests.docs.machine import Machine
from compat_tests.docs.reader import Reader, is_shown, source_of
from compat_tests.docs.scenarios import Scenario
from compat_tests.docs.session import statements

PAGE = """\
# Title

```sh
echo a
```

```text numbers
took 1.5 s
```

Words of `one
command`, and ``no `span` `` in it.

## Section

1. In a list:

   ````python
   if True:
       x = "```"
   ````

```{toctree}
page
```

```
none
```
"""


def test_blocks_have_their_place_language_and_text() -> None:
    page = blocks.read("page.md", PAGE)
    assert [(each.line, each.section, each.language, each.attributes, each.adjoins) for each in page.blocks] == [
        (3, "", "sh", (), False),
        (7, "", "text", ("numbers",), True),
        (18, "Section", "python", (), False),
        (27, "Section", "", (), True),
    ]
    assert page.blocks[2].text == 'if True:\n    x = "```"\n'
    assert page.sections == ("Section",)
    assert page.spans == ((11, "one command"), (12, "no `span`"))


def test_code_in_a_directive_is_a_block_too() -> None:
    (block,) = blocks.read("page.md", "```{code-block} sh\ntrue\n```\n").blocks
    assert block.language not in blocks.LANGUAGES


def test_a_command_may_have_several_lines() -> None:
    text = "# first\na \\\n  b\n\ncat <<'END'\nx 'y\nEND\nprintf 'c\nd'\nfor i in 1; do\n  e\ndone\n"
    assert list(statements(text)) == [
        "a \\\n  b",
        "cat <<'END'\nx 'y\nEND",
        "printf 'c\nd'",
        "for i in 1; do\n  e\ndone",
    ]
    with pytest.raises(AssertionError, match="unexpected"):
        list(statements("echo 'a"))


@pytest.mark.parametrize(
    ("text", "shown", "is_right"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a  \n\n", True),
        ("a\n", "b\na\n", False),
        ("a\n", "a\nb\n", False),
        ("a ... c\n", "a b b c\n", True),
        ("...\nc\n", "a\nb\nc\n", True),
        ("a 1\n", "a 2\n", False),
    ],
)
def test_output_is_compared(text: str, shown: str, is_right: bool) -> None:
    (block,) = blocks.read("page.md", f"```text\n{text}```\n").blocks
    assert is_shown(block, shown) == is_right


def test_output_that_goes_on_is_compared_up_to_there() -> None:
    (block,) = blocks.read("page.md", "```text\na\n```\n").blocks
    assert is_shown(block, "a\nb\n", goes_on=True)
    assert not is_shown(block, "b\na\n", goes_on=True)


def test_numbers_may_differ_where_the_page_says_so() -> None:
    (block,) = blocks.read("page.md", "```text numbers\n08:01:22.417  v12  1.2 ms 57 B\n```\n").blocks
    assert is_shown(block, "9:11:12.1    v7  12 ms  9 B\n")
    assert not is_shown(block, "9:11:12.1    v7  12 s 9 B\n")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("barnabas topics create orders --partitions 3", ""),
        ("barnabas -b localhost:9092 topics ls", ""),
        ("barnabas offsets export --from PLACE [--group G ...] [--format zk-tool|csv|json] [FILE]", ""),
        ("barnabas offsets migrate ... --to zookeeper", ""),
        ("barnabas consume a --exit | barnabas nothing", ""),
        ("barnabas topic create orders", "barnabas has no topic"),
        ("barnabas topics make orders", "barnabas topics has no make"),
        ("barnabas consume orders --from-start", "barnabas consume has no option --from-start"),
        ("barnabas sql 'SELECT", "No closing quotation"),
    ],
)
def test_a_command_is_known_or_not(command: str, said: str) -> None:
    assert mistake(command) == said


def test_a_connector_that_is_started_again_reads_the_same_source() -> None:
    first = source_of("barnabas connect binlog --source mysql://a@b:1 --snapshot initial")
    assert first == source_of("barnabas connect binlog --format debezium --source mysql://a@b:1")
    assert first != source_of("barnabas connect binlog --source mysql://a@b:2")
    assert first != source_of("barnabas connect apply --target mysql://a@b:1")


Read = Callable[..., Reader]


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Read]:
    """Read a page without a broker."""
    machine = Machine(tmp_path)

    def read(text: str, **scenario: object) -> Reader:
        reader = Reader(Scenario(broker=False, **scenario), machine)  # type: ignore[arg-type]
        reader.read(list(blocks.read("page.md", text).blocks))
        reader.close()
        return reader

    yield read
    machine.close()


def test_a_page_shows_what_all_commands_print_or_one_of_them(reading: Read) -> None:
    for shown in ("a\nb\n", "a\n", "b\n"):
        reading(f"```sh\necho a\necho b\n```\n\n```text\n{shown}```\n")


def test_what_a_command_sets_stays_for_the_next_block(reading: Read) -> None:
    reading(
        "```sh\nmkdir x && cd x\nX=1\nf() { echo $X; }\n```\n\n```sh\nf\nbasename $PWD\n```\n\n```text\n1\nx\n```\n"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```sh\ntrue\nls /nowhere\n```\n", "page.md:1: ls /nowhere\nended with 2"),
        ("```sh\nfalse | true\n```\n", "ended with 1"),
        ("```sh\necho a\n```\n\n```text\nb\n```\n", "page.md:5: the page shows\nb\n\nand this came:\na\n"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "page.md:5: the page shows\n2\n\nand this came:\n1\n"),
        ("```sh\nbarnabas topics\n```\n", "ended with 2"),
        ("```sh\npip install 'barnabas[nothing]'\n```\n", "there is no extra nothing"),
        ("```sh\nmake nothing\n```\n", "No rule to make target"),
        ("```sh\nexit\n```\n", "it has ended the session: exit"),
        ("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n", "page.md:5: .*AssertionError"),
        ("```properties\nlog.dirr=x\n```\n", "the broker does not know log.dirr"),
        ("```json\n{]\n```\n", "page.md:1: "),
        ("```\nx\n```\n", "nothing runs a block in no language"),
        ("```sh\nbarnabas serve --config nowhere\n```\n", "has ended:.*Cannot read config file"),
    ],
)
def test_what_is_wrong_is_seen(reading: Read, text: str, said: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){said}"):
        reading(text)


def test_a_hook_that_meets_nothing_is_seen(reading: Read) -> None:
    with pytest.raises(AssertionError, match="nothing in the page is like Gone"):
        reading("```sh\ntrue\n```\n", before={"Gone": "true"})


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["", "without interrupts"])
def test_what_follows_is_interrupted_when_it_has_shown_what_the_page_shows(
    reading: Read, handler: Callable[[int, FrameType | None], Any] | signal.Handlers
) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        reading("```sh\nprintf 'a\\nb\\n' > log\ntail -f log  # and so on\n```\n\n```text\na\nb\n```\n")
    finally:
        signal.signal(signal.SIGINT, before)


def test_nothing_is_left_of_what_a_page_has_started(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    reader = Reader(Scenario(broker=False), machine)
    reader.read(list(blocks.read("page.md", "```sh\nsleep 1000 &\necho $! > pid\n```\n").blocks))
    pid = int((machine.home / "pid").read_text())
    assert psutil.pid_exists(pid)
    machine.close()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
