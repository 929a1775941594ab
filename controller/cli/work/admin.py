"""Calls a running service, or any Kafka, through Kafka's protocol, for `users`, `acls` and `quotas`."""

import argparse
import asyncio
from contextlib import closing
from typing import Any

from controller.cli.arguments import Negative
from controller.kafka.connections import ClusterUnreachable, Connections, addresses
from controller.kafka.messages import APIS, Message
from controller.machine.errors import ErrorCode
from controller.serving.reach_cluster import security_in
from events.errors import UserError

CONFIG = "--command-config"


def call(options: argparse.Namespace, request: Message) -> Any:
    """Returns the response of the first address that can be reached. Raises UserError."""
    return asyncio.run(_call(options, request))


async def _call(options: argparse.Namespace, request: Message) -> Message:
    api = next(each for each in APIS.values() if each.request is type(request))
    security = security_in(options.command_config, CONFIG)
    failures = []
    with closing(Connections(security)) as connections:
        for address in addresses(options.bootstrap):
            try:
                return await connections.call(address, api.key, api.max_version, request, api.response)
            except ClusterUnreachable as error:
                failures.append(str(error))
    is_closed = "closed the connection" in failures[-1]
    hint = f"; it may require a login or TLS: configure them with {CONFIG} FILE, as in security.protocol=SASL_SSL"
    raise UserError("; ".join(failures) + (hint if is_closed and not security.mechanism else ""))


def check(*answers: Any) -> None:
    """Raises Negative for an error in a response or a part of it."""
    for each in answers:
        if each.error_code:
            name = ErrorCode(each.error_code).name if each.error_code in set(ErrorCode) else f"error {each.error_code}"
            raise Negative(f"{name}: {each.error_message}" if each.error_message else name)
