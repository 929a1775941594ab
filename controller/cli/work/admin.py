"""Calls a running service, or any Kafka, through Kafka's protocol, for `users`, `acls` and `quotas`."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import closing
from typing import TypeVar

from controller.cli.arguments import Negative
from controller.kafka.connections import ClusterUnreachable, Connections, NotAuthenticated, addresses
from controller.kafka.messages import Message
from controller.machine.errors import ErrorCode
from controller.serving.reach_cluster import security_in
from events.errors import UserError

M = TypeVar("M", bound=Message)
CONFIG = "--command-config"


def call(options: argparse.Namespace, api_key: int, version: int, request: Message, answer: type[M]) -> M:
    """Returns the response of the first address that can be reached. Raises UserError."""
    return asyncio.run(_call(options, api_key, version, request, answer))


async def _call(options: argparse.Namespace, api_key: int, version: int, request: Message, answer: type[M]) -> M:
    security = security_in(options.command_config, CONFIG)
    failures = []
    with closing(Connections(security)) as connections:
        for address in addresses(options.bootstrap):
            try:
                return await connections.call(address, api_key, version, request, answer)
            except ClusterUnreachable as error:
                failures.append(str(error))
            except NotAuthenticated as error:
                raise UserError(str(error)) from None
    is_closed = "closed the connection" in failures[-1]
    hint = f"; it may require a login or TLS: configure them with {CONFIG} FILE, as in security.protocol=SASL_SSL"
    raise UserError("; ".join(failures) + (hint if is_closed and not security.mechanism else ""))


def check(error_code: int, error_message: str | None) -> None:
    """Raises Negative for an error in a response."""
    if error_code:
        name = ErrorCode(error_code).name if error_code in set(ErrorCode) else f"error {error_code}"
        raise Negative(f"{name}: {error_message}" if error_message else name)
