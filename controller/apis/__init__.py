"""Kafka APIs: requests to commands or reads, answers to responses."""

from __future__ import annotations

from typing import TypedDict

from controller.brokers.port import Stamp, stamp
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.machine.decision import Answer, Detail
from controller.machine.errors import Rejection


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
