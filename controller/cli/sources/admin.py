"""What `topicwright users` asks of a running service: SCRAM users through Kafka's admin API.

The client tries to connect again and again by itself, and says nothing meanwhile. Here the first answer counts: where
the login fails, or nobody listens, the command ends with what the client saw.
"""

from __future__ import annotations

import logging
import time  # noqa: TID251 - how long a person waits in front of a command
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from controller.machine.decision import Detail

ANSWERED_WITHIN_S = 30.0
"""How long a service that is reached may take: one of its brokers may be restarting."""
LOOK_EVERY_S = 0.05
SELDOM: Mapping[str, int] = {"reconnect.backoff.ms": 1000, "reconnect.backoff.max.ms": 1000}
"""So that a wrong password is tried once before the command ends."""
HOPELESS = ("_AUTHENTICATION", "_SSL")
"""What more attempts change nothing of."""
DOWN, ALL_DOWN = "_TRANSPORT", "_ALL_BROKERS_DOWN"
HOPELESS_AFTER: Mapping[str, int] = {**dict.fromkeys(HOPELESS, 1), DOWN: 2, ALL_DOWN: 3}
"""A name may have two addresses, as localhost has, of which one answers; each attempt takes the next. Where a service
closes each connection, as one that wants a login or TLS does, the client says that all brokers are down, no more."""


class AdminError(Exception):
    """The service did not do it; the message says why, and `code` is Kafka's error where the service answered."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Admin:
    """A connection to a service. Raises AdminError, for properties that librdkafka does not take too."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        from confluent_kafka import KafkaException

        self._bootstrap = bootstrap
        self._seen: list[Any] = []
        config = {"bootstrap.servers": bootstrap, "client.id": "topicwright-users", **properties, **SELDOM}
        try:
            self._client = admin_module().AdminClient({**config, "error_cb": self._seen.append}, logger=_silent())
        except KafkaException as error:
            raise AdminError(error.args[0].str()) from None

    def alter(self, change: object) -> Detail:
        """Set or remove what a user logs in with; the outcome, refusals among them."""
        futures = self._client.alter_user_scram_credentials([change], request_timeout=ANSWERED_WITHIN_S)
        try:
            (future,) = futures.values()
            self._result(future)
        except AdminError as error:
            if not error.code:
                raise
            return Detail(error.code, str(error))
        return Detail()

    def users(self) -> list[tuple[str, str, int]]:
        """Users with their mechanisms and iterations."""
        found = self._result(self._client.describe_user_scram_credentials(request_timeout=ANSWERED_WITHIN_S))
        return [
            (user, info.mechanism.name.replace("_", "-"), info.iterations)
            for user, described in found.items()
            for info in described.scram_credential_infos
        ]

    def _result(self, future: Future[Any]) -> Any:
        """What the service answers; waits no longer than there is hope."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + ANSWERED_WITHIN_S
        while not future.done():
            self._client.poll(LOOK_EVERY_S)
            if future.done():
                break
            names = [seen.name() for seen in self._seen]
            if any(names.count(name) >= often for name, often in HOPELESS_AFTER.items()):
                raise AdminError(self._why())
            if time.monotonic() > deadline:
                raise AdminError(f"{self._bootstrap} gave no answer within {ANSWERED_WITHIN_S:.0f} s; {self._why()}")
        try:
            return future.result(0)
        except KafkaException as error:
            raise AdminError(error.args[0].str(), int(error.args[0].code())) from None

    def _why(self) -> str:
        """The first cause that the client named, without how it names connections."""
        causes = [seen.str() for seen in self._seen if seen.name() != ALL_DOWN]
        if self._seen and not causes:
            return (
                f"{self._bootstrap} closes each connection: it may want a login or TLS; say how to connect with "
                "--command-config FILE, as security.protocol=SASL_SSL"
            )
        if not causes:
            return f"no connection to {self._bootstrap}"
        refused = any(seen.name() == "_AUTHENTICATION" for seen in self._seen)
        what = "the login was refused by" if refused else "nobody answers at"
        cause = causes[0].partition("/bootstrap: ")[2] or causes[0]
        return f"{what} {self._bootstrap}: {cause}"


def admin_module() -> Any:
    """confluent-kafka's, which takes 0.1 s to import; it does not say what it exports."""
    from confluent_kafka import admin

    return admin


def _silent() -> logging.Logger:
    logger = logging.getLogger("topicwright.users")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
