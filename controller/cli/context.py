"""`topicwright context` and `completion`. Contexts are names for services, stored in the user's configuration folder.

A command reads the first of `--http`, `--context`, TOPICWRIGHT_HTTP, TOPICWRIGHT_CONTEXT, the context in use, and
127.0.0.1:8080. A context has an address and the path of a --command-config file (never a secret itself). The file is
`topicwright/contexts.json` in XDG_CONFIG_HOME, else in ~/.config.

`completion` prints the script that completes commands, flags and names in a shell. On Tab the shell runs `topicwright`
itself (argcomplete), so completions always match the installed release.
"""

import argparse
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.cli.arguments import http_address_text
from controller.cli.commands import Parsers, add, add_action, add_actions, add_command
from controller.cli.output import add_output, show
from events.errors import UserError

DEFAULT_HTTP = "127.0.0.1:8080"
HTTP, CONTEXT = "TOPICWRIGHT_HTTP", "TOPICWRIGHT_CONTEXT"
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
FILE_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Context:
    """The values of --http and --command-config."""

    http: str
    command_config: str | None = None


@dataclass(frozen=True)
class Contexts:
    """All contexts by name, and the name of the context in use."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str) -> Context:
        """Raises UserError."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise UserError(f"there is no context {name!r}; there are: {known} (topicwright context add NAME)")
        return self.by_name[name]


def file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "topicwright" / "contexts.json"


def read() -> Contexts:
    """All contexts. Raises UserError."""
    import msgspec

    from events.logs.log import read_text

    path = file()
    try:
        return msgspec.json.decode(read_text(path, FILE_BYTES_MAX), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a valid file of contexts: {error}") from None


def write(contexts: Contexts) -> None:
    """Replace the file. Raises OSError."""
    import msgspec

    from events.files import replacing

    path = file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as fresh:
        fresh.write(msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")


def chosen(http: str | None, context: str | None) -> Context:
    """The service named by the flags, the environment, or the file of contexts. Raises UserError."""
    if http is not None:
        return Context(http)
    if context is not None:
        return read().named(context)
    if os.environ.get(HTTP):
        return Context(os.environ[HTTP])
    contexts = read()
    name = os.environ.get(CONTEXT) or contexts.current
    return Context(DEFAULT_HTTP) if name is None else contexts.named(name)


def context_names(**_: Any) -> Iterable[str]:
    try:
        return sorted(read().by_name)
    except UserError:
        return ()


# --- the commands


def register(commands: Parsers) -> None:
    more = (
        f"The context in use replaces the default 127.0.0.1:8080; --http, --context, {HTTP} and {CONTEXT} override it."
    )
    actions = add_actions(add_command(commands, "context", more=more))
    listing = add_action(actions, "list", "list contexts; * marks the one in use", "context.list_")
    add_output(listing)
    adding = add_action(actions, "add", "add a context, or replace it", "context.add_context")
    add(adding, "name CONTEXT", "the context", _name)
    add(adding, "--http HOST:PORT", "or https://HOST:PORT", http_address_text, required=True)
    add(adding, "--command-config FILE", "properties file for the login")
    using = add_action(actions, "use", "use a context by default", "context.use")
    removing = add_action(actions, "remove", "remove a context", "context.remove")
    for each in (using, removing):
        add(each, "name CONTEXT", "the context", completer=context_names)
    completion = add_command(commands, "completion", "context.print_script")
    completion.formatter_class, completion.epilog = argparse.RawDescriptionHelpFormatter, HOW
    add(completion, "shell SHELL", ", ".join(SHELLS), choices=SHELLS)


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to 100 letters, digits, '.', '_' or '-'")
    return text


def list_(options: argparse.Namespace) -> int:
    contexts = read()
    by_name = dict(sorted(contexts.by_name.items()))
    answer = {"current": contexts.current, "contexts": by_name}

    in_use = {contexts.current: "*"}
    rows = [(in_use.get(name, ""), name, one.http, one.command_config or "-") for name, one in by_name.items()]
    header, empty = ("", "NAME", "HTTP", "COMMAND-CONFIG"), f"There are no contexts in {file()}."
    return show(options, answer, lambda style: style.table(header, rows, empty), lambda: by_name)


def add_context(options: argparse.Namespace) -> None:
    contexts = read()
    config = None if options.command_config is None else os.path.abspath(options.command_config)
    by_name = {**contexts.by_name, options.name: Context(options.http, config)}
    write(Contexts(by_name, contexts.current or options.name))
    print(f"context {options.name} is {options.http}" + ("" if contexts.current else ", and in use"))


def use(options: argparse.Namespace) -> None:
    contexts = read()
    one = contexts.named(options.name)
    write(Contexts(contexts.by_name, options.name))
    print(f"context {options.name} is in use: {one.http}")


def remove(options: argparse.Namespace) -> None:
    contexts = read()
    contexts.named(options.name)
    left = {name: one for name, one in contexts.by_name.items() if name != options.name}
    write(Contexts(left, None if contexts.current == options.name else contexts.current))
    print(f"context {options.name} is removed")


SHELLS = ("bash", "zsh", "fish")
HOW = """\
    bash    source <(topicwright completion bash)             in ~/.bashrc
    zsh     source <(topicwright completion zsh)              in ~/.zshrc, after compinit
    fish    topicwright completion fish | source              in ~/.config/fish/config.fish
"""


def print_script(options: argparse.Namespace) -> None:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["topicwright"], shell=options.shell))
