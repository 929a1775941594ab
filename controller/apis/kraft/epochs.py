"""Broker epochs on the wire: offsets in the metadata log, where the machine counts registrations."""

from __future__ import annotations

from typing import Protocol

from controller.machine.errors import ErrorCode


class BrokerEpochs(Protocol):
    """Which registration is meant by an epoch on the wire."""

    def machine_epoch(self, broker_id: int, epoch: int) -> int:
        """The machine's epoch of the registration that `epoch` stands for; one that no broker has where there is
        none. An epoch of -1, any, stays that."""
        ...

    def is_unknown_directory(self, broker_id: int, directory: bytes) -> bool:
        """Whether the broker is known not to have this log directory."""
        ...


def as_brokers_take_it(code: int) -> int:
    """An error for a whole request as brokers understand it: while the log cannot be written they are to try again."""
    retry = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR)
    return int(ErrorCode.NOT_CONTROLLER) if code in retry else code
