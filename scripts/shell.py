r"""The shell of `barnabas sql`: each typed statement runs at its `;`, and commands begin with `\`.

No failing statement ends the shell: errors are printed, and Ctrl-C ends only the statement. Lines are edited with
prompt_toolkit; without it they are read unedited.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barnabas.client.admin import topic_configs
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.scripts.mistakes import did_you_mean, pointed
from barnabas.scripts.rows import FORMATS
from barnabas.scripts.shell_words import Catalog, coloured, completions
from barnabas.scripts.sql import Session
from barnabas.scripts.statements import written
from barnabas.wire.queries.keys import PLAN, QUERY
from barnabas.wire.queries.plan import plan_of
from barnabas.wire.streams.keys import STREAM_KEYS, STREAM_NAME
from barnabas.wire.streams.plan import stream_plan_of
from barnabas.wire.streams.tokens import BRACKETED, COMMENT, SyntaxProblem, lexed
from barnabas.wire.table import table
from barnabas.wire.text import visible

COMMANDS = {
    "\\?": "this help",
    "\\q": "leave, as Ctrl-D does",
    "\\d": "topics, query topics and streams; \\d NAME: one of them",
    "\\g": "run the last statement again; at the end of a statement: run it, as ; does",
    "\\G": "the same, with rows upright",
    "\\x": "rows upright, or as a table again",
    "\\plot": "SELECTs are drawn, or shown as rows again",
    "\\timing": "say after each SELECT how long it took, or no more",
    "\\format": f"how rows look: \\format {'|'.join(FORMATS)}",
    "\\o": "rows go to a file: \\o FILE; \\o alone: to the terminal again",
}
_ALIASES = {
    "\\h": "\\?", "\\help": "\\?", "help": "\\?", "quit": "\\q", "exit": "\\q", ".quit": "\\q", ".exit": "\\q",
    "\\dt": "\\d", ".tables": "\\d", ".schema": "\\d", "\\l": "\\d", "\\pset": "\\format", ".help": "\\?",
    ".mode": "\\format", ".output": "\\o", ".timer": "\\timing",
}  # fmt: skip
_PROMPT, _GOES_ON = "barnabas> ", "      ..> "
_HINT = "for completion, history and several lines: pip install prompt_toolkit (the extra `shell`)"
_COLOURS = {
    "keyword": "bold ansiblue",
    "function": "ansicyan",
    "text": "ansigreen",
    "number": "ansimagenta",
    "name": "",
    "comment": "ansibrightblack",
}


def run(session: Session) -> int:
    """Read and run until Ctrl-D, and return the exit status."""
    shell = Shell(session)
    print("barnabas sql: a statement ends with ;   \\? is the help, Ctrl-D leaves")
    try:
        read = _edited(shell.catalog)
    except ImportError:
        print(_HINT)
        read = _plain
    while True:
        try:
            text = read()
        except KeyboardInterrupt:
            continue
        except EOFError:
            print()
            return 0
        if not shell.give(text):
            return 0


class Shell:
    """Runs what the user types."""

    def __init__(self, session: Session) -> None:
        self._session, self._last = session, ""
        self.catalog = Catalog(session.settings.server)

    def give(self, text: str) -> bool:
        """Run any input; False if it asks to leave. Errors are printed."""
        begin = ""
        try:
            begin = text.strip()
            word, _, rest = begin.removesuffix(";").strip().partition(" ")
            word = _ALIASES.get(word, word)
            if word == "\\q" and not rest:
                return False
            if word.startswith("\\"):
                self._command(word, rest.strip())
            else:
                self._statements(begin)
        except ClientError as error:
            self._tell(begin, error)
        except KeyboardInterrupt:
            print("\nended: the statement was interrupted", file=sys.stderr)
        except Exception as error:  # whatever a library raises, the shell stays
            print(f"barnabas: {visible(f'{type(error).__name__}: {error}')[:2000]}", file=sys.stderr)
        return True

    def _statements(self, text: str) -> None:
        is_upright = text.endswith("\\G")
        if text.endswith(("\\g", "\\G")):
            text = text[:-2]
        for statement in written(text):
            self._last = statement.text
            try:
                with self._upright(is_upright):
                    self._session.run(statement.text, _paged)
            except ClientError as error:
                self._tell(statement.text, error)
                return
            finally:
                self.catalog.forget()

    @contextlib.contextmanager
    def _upright(self, is_upright: bool) -> Iterator[None]:
        settings = self._session.settings
        before = settings.upright
        settings.upright = before or is_upright
        try:
            yield
        finally:
            settings.upright = before

    def _tell(self, text: str, error: ClientError) -> None:
        for line in pointed(text, str(error)):
            print(line, file=sys.stderr)
        print(visible(str(error)), file=sys.stderr)

    # --- commands -----------------------------------------------------------------------------------------------------

    def _command(self, word: str, rest: str) -> None:
        makers: dict[str, Callable[[str], None]] = {
            "\\?": self._help,
            "\\d": self._describe,
            "\\g": self._again,
            "\\G": self._again_upright,
            "\\x": self._toggle_upright,
            "\\plot": self._toggle_plot,
            "\\timing": self._toggle_timing,
            "\\format": self._format,
            "\\o": self._output,
        }
        if word not in makers:
            near = did_you_mean(word, [name.upper() for name in COMMANDS]).lower()
            raise ClientError(f"there is no command {word}: \\? shows all{near}")
        makers[word](rest)

    def _help(self, _: str) -> None:
        print("\n".join(f"{name:<10}{what}" for name, what in COMMANDS.items()))
        print("Statements: barnabas sql --help, or docs/sql-shell.md")

    def _again(self, _: str) -> None:
        if not self._last:
            raise ClientError("there is no statement before this one")
        self._statements(self._last)

    def _again_upright(self, _: str) -> None:
        with self._upright(True):
            self._again("")

    def _toggle_upright(self, _: str) -> None:
        settings = self._session.settings
        settings.upright, settings.plot = not settings.upright, False
        print(f"rows are {'upright' if settings.upright else 'a table'}")

    def _toggle_plot(self, _: str) -> None:
        settings = self._session.settings
        settings.plot, settings.upright = not settings.plot, False
        print(f"SELECTs are {'drawn' if settings.plot else 'shown as rows'}")

    def _toggle_timing(self, _: str) -> None:
        settings = self._session.settings
        settings.timing = not settings.timing
        print(f"timing is {'on' if settings.timing else 'off'}")

    def _format(self, rest: str) -> None:
        if rest not in FORMATS:
            raise ClientError(f"\\format {'|'.join(FORMATS)} (now: {self._session.settings.format})")
        self._session.settings.format = rest
        print(f"rows are {rest}")

    def _output(self, rest: str) -> None:
        self._session.settings.output = rest or None
        print(f"rows go to {visible(rest) or 'the terminal'}")

    def _describe(self, rest: str) -> None:
        name = rest.strip("`")
        if not name:
            print(_everything(self._session.settings.server))
        elif name in self.catalog.topics():
            self._session.run(f"DESCRIBE TOPIC `{name.replace('`', '``')}`")
        else:
            self._session.run(f"DESCRIBE STREAM `{name.replace('`', '``')}`")


def _everything(server: str) -> str:
    """A table of everything that exists."""
    with Cluster(server) as cluster:
        names = sorted(topic.name or "" for topic in cluster.metadata(None) if not topic.is_internal)
        rows = []
        for name, configs in topic_configs(cluster, names, [QUERY, PLAN, *STREAM_KEYS]).items():
            stream, query = stream_plan_of(configs), plan_of(configs)
            if stream is not None:
                kind, of = f"stream {configs.get(STREAM_NAME, name)}", ", ".join(stream.sources)
            elif query is not None and QUERY in configs:
                kind, of = "query topic", query.source or query.pattern
            else:
                kind, of = "topic", ""
            rows.append((name, kind, of))
    return table(("NAME", "KIND", "READS"), rows)


# --- showing ----------------------------------------------------------------------------------------------------------


def _paged(text: str) -> None:
    """Print, with a pager if the text is larger than the screen."""
    size = shutil.get_terminal_size()
    lines = text.split("\n")
    fits = len(lines) < size.lines and max(map(len, lines)) <= size.columns
    pager = shlex.split(os.environ.get("PAGER", "less -S -F -X"))
    if fits or not sys.stdout.isatty() or not pager or shutil.which(pager[0]) is None:
        print(text)
        return
    with subprocess.Popen(pager, stdin=subprocess.PIPE, env=os.environ | {"LESSSECURE": "1"}) as process:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
            process.stdin.write(text.encode("utf-8", "backslashreplace") + b"\n")
            process.stdin.close()
        while True:
            try:
                process.wait()
                return
            except KeyboardInterrupt:  # it is meant for the pager
                continue


# --- reading ----------------------------------------------------------------------------------------------------------


def is_whole(text: str) -> bool:
    """Whether the input is ready to run: a command, or statements whose last one is complete."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or stripped.split()[0] in _ALIASES:
        return True
    if stripped.endswith(("\\g", "\\G")):
        return True
    try:
        found = [token for token in lexed(stripped) if token.kind not in (COMMENT, BRACKETED)]
    except SyntaxProblem:
        return False
    return not found or found[-1].says(";")


def history_file() -> Path:
    """The file that keeps statements for the next session, readable by its user only."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(state) / "barnabas" / "sql_history"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    return path


def _plain() -> str:
    text = input(_PROMPT)
    while not is_whole(text):
        text += "\n" + input(_GOES_ON)
    return text


def _edited(catalog: Catalog) -> Callable[[], str]:
    """A function that reads one input. Raises ImportError if prompt_toolkit is missing."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.lexers import Lexer
    from prompt_toolkit.styles import Style

    class Names(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Completion]:
            for each in completions(document.text_before_cursor, document.text, catalog, COMMANDS):
                shown = visible(each.text)
                yield Completion(each.text, -each.replaced, display=shown, display_meta=each.what)

    class Colours(Lexer):
        def lex_document(self, document: Any) -> Callable[[int], Any]:
            lines: list[list[tuple[str, str]]] = [[]]
            for kind, text in coloured(document.text):
                first, *others = text.split("\n")
                lines[-1].append((f"class:{kind}" if kind else "", first))
                lines += [[(f"class:{kind}" if kind else "", other)] for other in others]
            return lambda number: lines[number] if number < len(lines) else []

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    history: History = InMemoryHistory()
    try:
        history = FileHistory(str(history_file()))
    except OSError as error:
        print(f"there is no history: {error.filename}: {error.strerror}", file=sys.stderr)
    session: PromptSession[str] = PromptSession(
        message=_PROMPT,
        multiline=True,
        prompt_continuation=lambda width, number, is_wrapped: _GOES_ON,
        completer=Names(),
        complete_in_thread=True,
        complete_while_typing=True,
        history=history,
        lexer=Colours(),
        style=Style.from_dict(_COLOURS),
        key_bindings=keys,
        enable_open_in_editor=True,
    )
    return session.prompt
