"""What all commands share on the command line: a parser with helpful errors, and the options that name a broker.

`--bootstrap-server` (`-b`, `--bootstrap`, `--server`) is accepted before the command, before its verb, and after it.
The last one counts. Without the option, the environment variable BARNABAS_BOOTSTRAP_SERVERS is used.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

DEFAULT_SERVER = "localhost:9092"
SERVERS = "BARNABAS_BOOTSTRAP_SERVERS"
CONFIG = "BARNABAS_COMMAND_CONFIG"
_CHOICE = re.compile(
    r"argument (?P<what>\S+): invalid choice: '(?P<given>.*?)' \(choose from (?P<known>.*)\)$", re.DOTALL
)
_UNKNOWN = re.compile(r"unrecognized arguments: (?P<given>.*)$", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with a remedy: the nearest word, and how to get help."""

    #: The parser of the deepest sub-command reached.
    deepest: argparse.ArgumentParser | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        Parser.deepest = self
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and exit with status 2."""
        from barnabas.wire.text import visible

        sys.stderr.write(f"barnabas: {visible(self._told(message))}\n")
        reached = Parser.deepest or self
        sys.stderr.write(f"'{reached.prog} --help' lists the commands and options.\n")
        sys.exit(2)

    def _told(self, message: str) -> str:
        if found := _CHOICE.match(message):
            known = [word.strip().strip("'") for word in found["known"].split(",")]
            what = {"COMMAND": "command", "VERB": "verb"}.get(found["what"], f"value of {found['what']}")
            near = difflib.get_close_matches(found["given"], known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            return f"there is no {what} {found['given'] or 'without a name'}: {remedy}"
        if found := _UNKNOWN.match(message):
            given = found["given"].split()[0]
            options = sorted(options_of(Parser.deepest or self))
            near = difflib.get_close_matches(given.partition("=")[0], options, n=1) if given.startswith("-") else []
            return f"what is {found['given']}? " + (
                f"Did you mean {near[0]}?" if near else "The command does not take it."
            )
        return message


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """The options that a parser accepts, as typed."""
    return {option for action in parser._actions for option in action.option_strings if option.startswith("--")}


def secure() -> Parser:
    """The option of every command that talks to a broker."""
    options = Parser(add_help=False)
    options.add_argument(
        "--command-config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="a client.properties of Kafka with the login and TLS (security.protocol, ssl.*, sasl.*; default: the "
        f"file that the environment variable {CONFIG} names)",
    )
    return options


def asked() -> Parser:
    """The options of every command that asks a broker, accepted at every position."""
    options = Parser(add_help=False, parents=[secure()])
    options.add_argument(
        "-b",
        "--bootstrap-server",
        "--bootstrap",
        "--server",
        dest="server",
        metavar="HOST:PORT[,...]",
        default=argparse.SUPPRESS,
        help="brokers to ask; the first that answers is used (default: what the environment variable "
        f"{SERVERS} names, else {DEFAULT_SERVER})",
    )
    return options


def shown() -> Parser:
    """The options of every command that lists or describes."""
    options = Parser(add_help=False)
    options.add_argument("--json", action="store_true", help="a JSON object on each line, for programs")
    options.add_argument(
        "--watch", dest="again", action="store_true", help="repeat every two seconds, until interrupted"
    )
    return options


def default_server() -> str:
    """The broker that commands ask when no option names one."""
    return os.environ.get(SERVERS) or DEFAULT_SERVER


# --- completion -------------------------------------------------------------------------------------------------------

SHELLS = {
    "bash": """_barnabas() {
    local IFS=$'\\n'
    COMPREPLY=($(barnabas __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _barnabas barnabas
""",
    "zsh": """#compdef barnabas
_barnabas() {
    local -a found
    found=("${(@f)$(barnabas __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -a found
}
compdef _barnabas barnabas
""",
    "fish": """complete -c barnabas -f -a '(barnabas __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}
#: How long the shell waits for a broker's answer.
_PATIENCE_SECONDS = 1.0


def completions(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """The words that may complete the last one, which may be empty."""
    *before, begun = words or [""]
    server, wanted, positional = default_server(), None, 0
    for word in before:
        if wanted is not None:
            server = word if wanted.dest == "server" else server
            wanted = None
        elif word.startswith("-"):
            name, equals, _ = word.partition("=")
            action = next((each for each in parser._actions if name in each.option_strings), None)
            wanted = action if action is not None and action.nargs is None and not equals else None
        elif (inside := _verbs(parser)) and word in inside:
            parser, positional = inside[word], 0
        else:
            positional += 1
    found = _values(wanted, server) if wanted is not None else _next(parser, begun, positional, server)
    return sorted(word for word in found if word.startswith(begun))


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next((dict(a.choices) for a in parser._actions if isinstance(a, argparse._SubParsersAction)), {})


def _next(parser: argparse.ArgumentParser, begun: str, positional: int, server: str) -> Iterator[str]:
    if begun.startswith("-"):
        yield from options_of(parser)
        return
    yield from _verbs(parser)
    places = [a for a in parser._actions if not a.option_strings and not isinstance(a, argparse._SubParsersAction)]
    if places and (positional < len(places) or places[-1].nargs in ("+", "*")):
        yield from _values(places[min(positional, len(places) - 1)], server)


def _values(action: argparse.Action, server: str) -> Iterator[str]:
    if action.choices is not None:
        yield from map(str, action.choices)
    elif action.dest in ("topic", "group"):
        yield from _names(action.dest, server)


def _names(kind: str, server: str) -> list[str]:
    """The broker's topics or groups; empty if it does not answer soon."""
    import threading

    found: list[str] = []

    def ask() -> None:
        from barnabas.client import groups
        from barnabas.client.cluster import Cluster
        from barnabas.client.errors import ClientError

        try:
            with Cluster(server) as cluster:
                if kind == "topic":
                    found.extend(topic.name or "" for topic in cluster.metadata(None) if not topic.is_internal)
                else:
                    found.extend(group.group_id for group in groups.list_groups(cluster))
        except (ClientError, OSError):
            pass

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    return [name for name in found if name.isprintable() and " " not in name]
