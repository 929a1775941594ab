"""Which source the flags of a command mean. What it takes to read is imported only then."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from controller.cli.terminal.contexts import HTTP

if TYPE_CHECKING:
    from controller.cli.sources.http import HttpSource, Source


def a_source(options: argparse.Namespace, within_s: float | None = None) -> AbstractContextManager[Source]:
    """The folder or the running service that is meant, which is to answer soon enough. Raises ContextError,
    AccessError, SourceError."""
    if getattr(options, "data", None) is not None:
        from controller.cli.sources.folder import FolderSource

        return FolderSource(options.data)
    return http_source(options, within_s)


def http_source(options: argparse.Namespace, within_s: float | None = None) -> HttpSource:
    """The running service that is meant. Raises ContextError, AccessError, SourceError."""
    from controller.cli.sources.http import ANSWERED_WITHIN_S, HttpSource, SourceError
    from controller.cli.sources.http_access import http_address, read_access
    from controller.cli.terminal.contexts import chosen

    context = chosen(options.http, options.context)
    config = options.command_config
    if config is None and context.command_config is not None:
        config = Path(context.command_config)
    try:
        address = http_address(context.http)
    except argparse.ArgumentTypeError as error:  # of the environment, or a context
        raise SourceError(f"{HTTP} or the context in use: {error}") from None
    return HttpSource(address, read_access(config), within_s or ANSWERED_WITHIN_S)
