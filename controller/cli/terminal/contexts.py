"""Which service commands read and change, where no flag says it.

In this order: `--http`, `--context`, TOPICWRIGHT_HTTP, TOPICWRIGHT_CONTEXT, the context in use, 127.0.0.1:8080. A
context is a name for an address and a file of logins (never a secret itself), in `topicwright/contexts.toml` of the
user's configuration folder (XDG_CONFIG_HOME, else ~/.config).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

DEFAULT_HTTP = "127.0.0.1:8080"
HTTP, CONTEXT = "TOPICWRIGHT_HTTP", "TOPICWRIGHT_CONTEXT"
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
FILE_BYTES_MAX = 1 << 20


class ContextError(Exception):
    """A context that is not there or cannot be read; the message says which there are."""


class Context(NamedTuple):
    """An address as `--http` takes it, and the file of `--command-config`."""

    http: str
    command_config: str | None = None


class Contexts(NamedTuple):
    """All contexts by name, and the one in use."""

    by_name: Mapping[str, Context] = {}
    current: str | None = None

    def named(self, name: str) -> Context:
        """One of them. Raises ContextError."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise ContextError(f"there is no context {name!r}; there are: {known} (topicwright context add NAME)")
        return self.by_name[name]


def file() -> Path:
    """Where contexts are."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "topicwright" / "contexts.toml"


def read() -> Contexts:
    """All that there are. Raises ContextError."""
    import tomllib

    from events.logs.log import read_text

    path = file()
    try:
        found = tomllib.loads(read_text(path, FILE_BYTES_MAX))
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, RecursionError) as error:
        raise ContextError(f"{path} cannot be read: {error}") from None
    by_name = {}
    for name, one in found.get("contexts", {}).items():
        if not isinstance(one, dict) or not isinstance(one.get("http"), str) or one.keys() - {"http", "command_config"}:
            raise ContextError(f"{path}: context {name!r} must have http, and may have command_config, and no more")
        by_name[name] = Context(one["http"], one.get("command_config"))
    return Contexts(by_name, found.get("current"))


def write(contexts: Contexts) -> None:
    """Keep these, and no others. Raises OSError."""
    lines = [] if contexts.current is None else [f"current = {json.dumps(contexts.current)}", ""]
    for name, one in sorted(contexts.by_name.items()):
        lines += [f"[contexts.{json.dumps(name)}]", f"http = {json.dumps(one.http)}"]
        lines += [] if one.command_config is None else [f"command_config = {json.dumps(one.command_config)}"]
        lines.append("")
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text("\n".join(lines))
    fresh.replace(path)


def chosen(http: str | None, context: str | None) -> Context:
    """The service that is meant by the flags that are given, and else by what is around. Raises ContextError."""
    if http is not None:
        return Context(http)
    if context is not None:
        return read().named(context)
    if os.environ.get(HTTP):
        return Context(os.environ[HTTP])
    contexts = read()
    name = os.environ.get(CONTEXT) or contexts.current
    return Context(DEFAULT_HTTP) if name is None else contexts.named(name)
