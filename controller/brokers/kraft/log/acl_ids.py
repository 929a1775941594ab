"""The ids by which brokers know access control entries, kept in the same store as the metadata log.

An id is worked out of the offset of the record of the entry, so an entry that is removed and created again
has another one. It must: a broker that sees both in one step takes them as one change of each id, and would add an id
that it has (`AclsDelta`, `AclCache.addAcl`).

State keys, under `ka`: an id, with its entry.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from events.access import Acl
from events.logs.log import EventLog

ENTRY: Final = b"ka"
_IDS: Final = uuid.UUID(int=2)


class AclIds:
    """The ids of the entries that hold, once `reload` was called. Belongs to deciding."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._cluster = uuid.uuid5(_IDS, log.cluster_id)
        self._ids: dict[Acl, bytes] = {}
        self._steps: list[tuple[Acl, bytes, bool]] = []
        """Since the last `changes`: an entry, its id, and whether it was given or taken."""

    def reload(self) -> None:
        """Take what the store has, as at the start and after a failed write."""
        decode = msgspec.msgpack.Decoder(Acl).decode
        self._ids = {decode(value): key[len(ENTRY) :] for key, value in self._log.scan(ENTRY)}
        self._steps = []

    def give(self, acl: Acl, offset: int) -> bytes:
        """The id of a new entry whose record is at this offset of the metadata log."""
        acl_id = uuid.uuid5(self._cluster, str(offset)).bytes
        self._ids[acl] = acl_id
        self._steps.append((acl, acl_id, True))
        return acl_id

    def take(self, acl: Acl) -> bytes:
        """The id of an entry that holds no more. Raises KeyError for one that the metadata log does not have."""
        acl_id = self._ids.pop(acl)
        self._steps.append((acl, acl_id, False))
        return acl_id

    @property
    def entries(self) -> Mapping[bytes, Acl]:
        """The entries by their ids."""
        return {acl_id: acl for acl, acl_id in self._ids.items()}

    def put(self, acl_id: bytes, acl: Acl | None) -> None:
        """Another controller gave an entry this id, or has removed the one that had it."""
        if acl is not None:
            self._ids[acl] = acl_id
            self._steps.append((acl, acl_id, True))
            return
        gone = next((each for each, known in self._ids.items() if known == acl_id), None)
        if gone is not None:
            self.take(gone)

    def savepoint(self) -> Callable[[], None]:
        """What undoes what is given and taken from now on; to be called before the next `changes`, if at all."""
        steps, done = self._steps, len(self._steps)

        def go_back() -> None:
            while len(steps) > done:
                acl, acl_id, is_given = steps.pop()
                if is_given:
                    del self._ids[acl]
                else:
                    self._ids[acl] = acl_id

        return go_back

    def changes(self) -> Mapping[bytes, bytes | None]:
        """The state keys that the next commit has to write; they are given once."""
        steps, self._steps = self._steps, []
        return acl_keys({acl_id: acl if is_given else None for acl, acl_id, is_given in steps})


def acl_keys(acls: Mapping[bytes, Acl | None]) -> Mapping[bytes, bytes | None]:
    """The state keys of some entries by their ids; None for one that is gone."""
    return {ENTRY + acl_id: None if acl is None else msgspec.msgpack.encode(acl) for acl_id, acl in acls.items()}
