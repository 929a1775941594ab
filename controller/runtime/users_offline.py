"""SCRAM users in the log of a stopped service: the same command and the same decision as through the admin API.

This is how the first user comes into a log whose listeners let nobody in without a login.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controller.brokers.kraft.metadata_log import MetadataLog
from controller.kafka.sasl.scram import keys_of, salted_password
from controller.machine.commands import AlterUserScramCredentials, AnyCommand, ChangeSettings, ScramRemoval, ScramUpsert
from controller.machine.credentials import MECHANISMS
from controller.machine.decide import decide
from controller.machine.decision import Detail
from controller.machine.state import State
from controller.runtime.front import new_topic_ids
from controller.runtime.settings import ServeSettings
from controller.runtime.users import SALT_BYTES
from events.catalog import EVENT_VERSION, Cause, Recorded
from events.codec import decode_event, encode_event
from events.log import Commit, Entry
from events.names import Offset, RequestId
from events.rocksdb_log import RocksDbLog
from projections.store import TopicStore

PRINCIPAL = "User:CLI"
"""Who changes credentials beside the service: whoever can write its data folder."""
NUMBERS = {name: number for number, name in MECHANISMS.items()}


class OfflineUsers:
    """The users of an open log."""

    def __init__(self, log: RocksDbLog, settings: ServeSettings, release: str) -> None:
        self._log = log
        self._store = TopicStore(log)
        self._state: State = self._store.state()
        self._metadata = MetadataLog(log)
        """Real brokers, if the log has such, are told with the same write."""
        end = log.next_offset
        newest_ms = decode_event(end - 1, log.read_one(end - 1)).at_ms if end else 0
        self._at_ms = max(time.time_ns() // 1_000_000, newest_ms)
        self._request_id = RequestId(f"users-{os.urandom(5).hex()}")
        if not end:  # the first event of every log says by which settings it is decided
            first = ChangeSettings(
                request_id=self._request_id,
                at_ms=self._at_ms,
                settings=settings.decision_settings(),
                release=release,
            )
            self._put(first)

    def add(self, user: str, mechanism: str, password: str, iterations: int) -> Detail:
        """Set a user's password for a mechanism."""
        salt = os.urandom(SALT_BYTES)
        keys = keys_of(mechanism, salted_password(mechanism, password, salt, iterations))
        return self._alter(upserts=(ScramUpsert(user, NUMBERS[mechanism], iterations, salt, *keys),))

    def remove(self, user: str, mechanism: str) -> Detail:
        """Remove what a user logs in with by a mechanism."""
        return self._alter(removals=(ScramRemoval(user, NUMBERS[mechanism]),))

    def mechanisms(self) -> list[tuple[str, str, int]]:
        """Users with their mechanisms and iterations, sorted."""
        scram = self._state.cluster.scram
        return [(user, mechanism, scram[user, mechanism].iterations) for user, mechanism in sorted(scram)]

    def _alter(self, removals: tuple[ScramRemoval, ...] = (), upserts: tuple[ScramUpsert, ...] = ()) -> Detail:
        command = AlterUserScramCredentials(
            request_id=self._request_id,
            at_ms=self._at_ms,
            principal=PRINCIPAL,
            client_id="topicwright users",
            removals=removals,
            upserts=upserts,
        )
        return self._put(command)[0]

    def _put(self, command: AnyCommand) -> tuple[Detail, ...]:
        """Decide, record and flush. Raises LogError."""
        decision = decide(self._state, command)
        cause = Cause(type(command).__name__, command.request_id)
        entries = []
        for offset, event in enumerate(decision.events, self._log.next_offset):
            key = self._metadata.apply(self._state, Recorded(Offset(offset), command.at_ms, cause, event))
            value = encode_event(command.at_ms, cause, event)
            entries.append(Entry(value, key, getattr(event, "request_id", "")))
        self._log.write(Commit(entries, {**self._store.changes(self._state), **self._metadata.changes()}))
        self._log.flush()
        self._store.became_durable(self._state)
        return decision.answers[0].details if decision.answers else ()


@contextmanager
def offline_users(data: Path, settings: ServeSettings, release: str) -> Iterator[OfflineUsers]:
    """The users of a data folder, which is made if it is not there. Raises LogError, also while a service has it."""
    log = RocksDbLog.open(
        data,
        cluster_id=settings.cluster_id,
        event_version=EVENT_VERSION,
        new_cluster_id=lambda: base64.urlsafe_b64encode(new_topic_ids(1)[0]).rstrip(b"=").decode(),
    )
    try:
        yield OfflineUsers(log, settings, release)
    finally:
        log.close()
