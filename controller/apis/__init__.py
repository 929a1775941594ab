"""Kafka APIs: requests to commands or reads, answers to responses."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypedDict

import msgspec

from controller.access.authorizer import Operation, ResourceType
from controller.brokers.port import Stamp, stamp
from controller.controller_api import ControllerApi
from controller.kafka.handling import Answer as Response
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


class Call(msgspec.Struct, frozen=True):
    """A request for a handler: its context, and the controller as clients of its listener see it."""

    api: ControllerApi
    context: RequestContext

    def allows(self, operation: Operation, name: str | None = None) -> bool:
        """True if the client may do this to the topic `name`, or without a name to the cluster."""
        return self.api.allows(self.context, operation, name)

    def grants(self, operation: Operation, name: str | None = None, kind: ResourceType = "Topic") -> bool:
        """Like `allows`, for an operation that the client explicitly requests: a denial is recorded in the log."""
        return self.api.grants(self.context, operation, name, kind)

    def origin(self, prefix: str = "") -> Origin:
        """The origin of commands for this request; its request id is new."""
        context = self.context
        return {
            **stamp(self.api.controller, prefix),
            "principal": context.principal,
            "client_id": context.client_id,
            "host": context.host,
        }


ApiFunction = Callable[[Call, Any], Response | Awaitable[Response]]
"""Answers a request; see `Handler`."""


def bound(api: ControllerApi, functions: Mapping[int, ApiFunction]) -> dict[int, Handler]:
    """The handlers of functions, by API key."""

    def handler(function: ApiFunction) -> Handler:
        return lambda context, request: function(Call(api, context), request)

    return {key: handler(function) for key, function in functions.items()}


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
