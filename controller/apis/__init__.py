"""Kafka APIs: requests to commands or reads, answers to responses."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict

from controller.access.authorizer import Operation
from controller.brokers.port import Stamp, stamp
from controller.controller_api import ControllerApi
from controller.kafka.handling import Handler, RequestContext
from controller.kafka.messages import APIS
from controller.machine.decision import Answer, Detail
from controller.machine.errors import ErrorCode, Rejection


class Origin(Stamp):
    """The fields of a command that say where it comes from. Commands of one request share them."""

    principal: str
    client_id: str
    host: str


class ErrorFields(TypedDict):
    """The error fields of a response or of a part of it; 0 is none."""

    error_code: int
    error_message: str | None


def errors_of(outcome: Answer | Detail | Rejection) -> ErrorFields:
    return {"error_code": outcome.code, "error_message": outcome.message or None}


def origin_of(api: ControllerApi, context: RequestContext, prefix: str = "") -> Origin:
    """The origin of commands for a request; its request id is new."""
    return {
        **stamp(api.controller, prefix),
        "principal": context.principal,
        "client_id": context.client_id,
        "host": context.host,
    }


ON_CLUSTER: Final[Mapping[int, Operation]] = {
    **dict.fromkeys((29, 35, 46, 50, 55), "Describe"),
    **dict.fromkeys((30, 31, 34, 43, 45, 51, 57, 64, 80, 81, 94), "Alter"),
    **{48: "DescribeConfigs", 49: "AlterConfigs"},
}
"""The operation on the cluster that an API needs, of the APIs that need no other permission: ACLs, SCRAM users, quotas,
log directories, reassignments, elections, quorum, features, unregistration. APIs of brokers need ClusterAction."""


def guarded(api: ControllerApi, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """Wraps handlers by API key: a client without the operation on the cluster gets an authorization error, as in
    Kafka's ControllerApis."""

    def denied(context: RequestContext) -> ErrorCode:
        operation = ON_CLUSTER.get(context.api_key, "ClusterAction")
        return ErrorCode.NONE if api.grants(context, operation) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    return checked(handlers, denied)


def checked(handlers: Mapping[int, Handler], error_of: Callable[[RequestContext], ErrorCode]) -> dict[int, Handler]:
    """Wraps handlers by API key: a request with an error is answered with it. Handlers of APIs without a top-level
    error code are returned as they are, and check themselves."""

    def wrapped(response: Any, handle: Handler) -> Handler:
        def answer(context: RequestContext, request: Any) -> Any:
            code = error_of(context)
            return response(error_code=code) if code else handle(context, request)

        return answer if "error_code" in response.__struct_fields__ else handle

    return {key: wrapped(APIS[key].response, handle) for key, handle in handlers.items()}
