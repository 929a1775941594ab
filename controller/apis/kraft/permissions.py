"""What a broker, or who else comes, must hold for what only registered brokers may ask: Kafka's rules (ControllerApis).

The metadata log has SCRAM credentials, so who may not act as a broker may not read it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from controller.access.authorizer import Operation
from controller.controller_api import ControllerApi
from controller.kafka.handling import Handler, RequestContext
from controller.kafka.messages import Message
from controller.machine.errors import ErrorCode


def needing(api: ControllerApi, operation: Operation, handle: Handler, refusal: Callable[..., Message]) -> Handler:
    """The handler for those who hold `operation` on the cluster; others get `refusal` with the code for it."""

    async def answer(context: RequestContext, request: Any) -> Any:
        if not api.grants(context, operation):
            return refusal(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        answered: Any = handle(context, request)
        return await answered if isinstance(answered, Awaitable) else answered

    return answer
