"""Contexts: names for services, kept in the user's configuration folder.

A command reads the first of `--http`, `--context`, TOPICWRIGHT_HTTP, TOPICWRIGHT_CONTEXT, the context in use, and
127.0.0.1:8080. A context has an address and the path of a --command-config file (never a secret itself). The file is
`topicwright/contexts.json` in XDG_CONFIG_HOME, else in ~/.config.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_HTTP = "127.0.0.1:8080"
HTTP, CONTEXT = "TOPICWRIGHT_HTTP", "TOPICWRIGHT_CONTEXT"
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
FILE_BYTES_MAX = 1 << 20


class BackendError(Exception):
    """No service or folder can be read; the message says what to do."""


class ContextError(BackendError):
    """An unknown context, or an invalid file of contexts."""


@dataclass(frozen=True)
class Context:
    """The values of --http and --command-config."""

    http: str
    command_config: str | None = None


@dataclass(frozen=True)
class Contexts:
    """All contexts by name, and the one in use."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str) -> Context:
        """Raises ContextError."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise ContextError(f"there is no context {name!r}; there are: {known} (topicwright context add NAME)")
        return self.by_name[name]


def file() -> Path:
    """The file of contexts."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "topicwright" / "contexts.json"


def read() -> Contexts:
    """All contexts. Raises ContextError."""
    import msgspec

    from events.logs.log import read_text

    path = file()
    try:
        return msgspec.json.decode(read_text(path, FILE_BYTES_MAX), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, RecursionError) as error:
        raise ContextError(f"{path} is not a valid file of contexts: {error}") from None


def write(contexts: Contexts) -> None:
    """Replace the file. Raises OSError."""
    import msgspec

    path = file()
    path.parent.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.format(msgspec.json.encode(contexts))
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(content + b"\n")
    fresh.replace(path)


def chosen(http: str | None, context: str | None) -> Context:
    """The service that the flags, the environment, or the file name. Raises ContextError."""
    if http is not None:
        return Context(http)
    if context is not None:
        return read().named(context)
    if os.environ.get(HTTP):
        return Context(os.environ[HTTP])
    contexts = read()
    name = os.environ.get(CONTEXT) or contexts.current
    return Context(DEFAULT_HTTP) if name is None else contexts.named(name)
