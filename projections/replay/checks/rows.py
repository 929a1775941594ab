"""Checks that need one event alone, and which commands may cause which events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from events.catalog import ADOPTED_DEADLINE_MS
from events.external_decision import FOLLOW
from projections.replay.checks.arrays import NONE, Bools, Ints, coded, numbers
from projections.replay.checks.check import Check, Place

_DISCOVERED = ("DiscoverTopic", "DiscoverDeletion")
ADOPTED = "AdoptMetadata"
"""The cause of all that stands for a cluster that was taken over as it was."""
_CHANGES = ("CreatePartitions", "DeleteTopic", "AlterTopicConfigs")

CAUSES: dict[str, tuple[str, ...]] = {
    "CreateRequested": ("CreateTopic",),
    "CreateRejected": ("CreateTopic",),
    "TopicCreated": ("CreateTopic", ADOPTED),
    "CreateAnswered": (
        "CreateTopic",
        "ExpireRequest",
        "ConfirmMetadata",
        "DeleteTopic",
        "RefuseCreation",
        *_DISCOVERED,
        "ReconcileTopics",
        FOLLOW,
    ),
    "PartitionsAdded": ("CreatePartitions", FOLLOW),
    "TopicDeleted": ("DeleteTopic",),
    "TopicConfigsChanged": ("AlterTopicConfigs", FOLLOW),
    "ChangeRejected": _CHANGES,
    "PartitionChanged": (
        "AlterTopicConfigs",
        "AlterPartition",
        "AssignDirectories",
        "BalanceLeaders",
        "DiscoverTopic",
        "ElectLeaders",
        "ReassignPartitions",
        "ReconcileTopics",
        FOLLOW,
    ),
    "MetadataPropagated": ("ConfirmMetadata",),
    "TopicReady": ("ConfirmMetadata", "DiscoverTopic", "ReconcileTopics"),
    "TopicDiscovered": ("DiscoverTopic", FOLLOW),
    "TopicVanished": (*_DISCOVERED, FOLLOW),
    "CreationRefused": ("RefuseCreation",),
    "ChangeCarriedOut": ("FinishChange",),
    "BrokerRegistered": ("RegisterBroker", ADOPTED, FOLLOW),
    "BrokerFenced": ("FenceBroker", "RegisterBroker", FOLLOW),
    "BrokerUnfenced": ("UnfenceBroker", ADOPTED, FOLLOW),
    "BrokerUnregistered": ("UnregisterBroker", FOLLOW),
    "BrokerLeaving": ("BeginShutdown", ADOPTED, FOLLOW),
    "LogDirsChanged": ("ChangeLogDirs", ADOPTED, FOLLOW),
    "QuorumEpochBegun": ("BeginQuorumEpoch", ADOPTED, FOLLOW),
    "MetadataAdopted": (ADOPTED,),
    "MetadataHandedBack": ("HandMetadataBack",),
    "HistorySkipped": (FOLLOW,),
    "HeadSigned": ("RecordHead",),
    "FeaturesChanged": ("BeginQuorumEpoch", "ChangeFeatures", ADOPTED, FOLLOW),
    "ResourceConfigsChanged": (
        "AlterResourceConfigs",
        "CopyBrokerConfigs",
        "BeginQuorumEpoch",
        "ChangeFeatures",
        ADOPTED,
        FOLLOW,
    ),
    "ProducerIdsAllocated": ("AllocateProducerIds", ADOPTED, FOLLOW),
    "SettingsChanged": ("ChangeSettings", ADOPTED, FOLLOW),
    "ScramCredentialSet": ("AlterUserScramCredentials", ADOPTED, FOLLOW),
    "ScramCredentialRemoved": ("AlterUserScramCredentials", FOLLOW),
    "LoginSecretDrawn": ("DrawLoginSecret",),
    "AclsCreated": ("CreateAcls", ADOPTED, FOLLOW),
    "AclsDeleted": ("DeleteAcls", FOLLOW),
    "QuotasChanged": ("AlterClientQuotas", ADOPTED, FOLLOW),
    "RequestsRefused": ("RecordRefusals",),
}
"""The commands that can lead to each event. A test keeps this in step with the catalog and with what logs hold."""

TYPES = tuple(CAUSES)
"""Every type of event; columns have the place in this."""
_COMMANDS = tuple(sorted({command for commands in CAUSES.values() for command in commands}))
_LEADS_TO = np.array([[command in commands for command in (*_COMMANDS, "")] for commands in CAUSES.values()])
"""Whether a command leads to an event, by their places; the last column is of commands that are not known."""

ROW_COLUMNS = (
    "log_partition", "offset", "shard", "topic", "type", "cause_command", "cause_id", "request_id", "error_code",
    "rule", "deadline_ms",
)  # fmt: skip
"""What is read of every event."""

_BY_CREATE = ("CreateTopic", "ExpireRequest")
_OF_A_CREATE = ("CreateRequested", "CreateRejected", "CreateAnswered")
_BY_ITSELF = ("CreateTopic", *_CHANGES)
_OF_A_REQUEST = ("TopicCreated", "PartitionsAdded", "TopicDeleted", "TopicConfigsChanged", "ChangeRejected")


def places_in(array: pa.Array, names: tuple[str, ...]) -> Ints:
    """A column of names as their places in a list, -1 for others and for null."""
    codes, found = coded(array)
    known = {name: place for place, name in enumerate(names)}
    return np.array([*(known.get(one, -1) for one in found), -1], np.int64)[codes]


def is_one_of(places: Ints, names: tuple[str, ...], wanted: tuple[str, ...]) -> Bools:
    """Whether the name at each place is one of those that are wanted."""
    return np.array([*(name in wanted for name in names), False])[places]


class Rows:
    """Events as they come, each to be looked at by itself; `batch` has ROW_COLUMNS."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.type = places_in(batch["type"], TYPES)
        self.command = places_in(batch["cause_command"], _COMMANDS)

    def place(self, row: int) -> Place:
        """Where an event stands."""
        place = (self.said(name, row) for name in ("log_partition", "shard", "offset", "topic"))
        log_partition, shard, offset, topic = place
        return log_partition, shard, offset, topic

    def said(self, name: str, row: int) -> Any:
        """What one event says."""
        return self._batch[name][row].as_py()

    def text(self, name: str, row: int) -> str:
        """The same for people."""
        said = self.said(name, row)
        return "none" if said is None else str(said)

    def number(self, name: str, otherwise: int = NONE) -> Ints:
        """A column of numbers."""
        return numbers(self._batch[name], otherwise)

    def of(self, *types: str) -> Bools:
        """Whether an event is of one of the types."""
        return is_one_of(self.type, TYPES, types)

    def by(self, *commands: str) -> Bools:
        """Whether an event's cause is one of the commands."""
        return is_one_of(self.command, _COMMANDS, commands)

    def empty(self, name: str) -> Bools:
        """Whether a text is empty or missing."""
        found: Bools = pc.equal(self._batch[name], "").fill_null(True).to_numpy(zero_copy_only=False)
        return found

    def of_another_request(self) -> Bools:
        """Whether the cause's request is not the one that the event names."""
        differ = pc.not_equal(self._batch["cause_id"], self._batch["request_id"])
        found: Bools = differ.fill_null(False).to_numpy(zero_copy_only=False)
        return found


def _without_cause(rows: Rows) -> Bools:
    led = _LEADS_TO[rows.type, rows.command] & (rows.type >= 0)
    its_own = (rows.by(*_BY_CREATE) & rows.of(*_OF_A_CREATE)) | (rows.by(*_BY_ITSELF) & rows.of(*_OF_A_REQUEST))
    its_own |= rows.of("ChangeCarriedOut")
    return rows.empty("cause_id") | ~led | (its_own & rows.of_another_request())


ROW_CHECKS = (
    Check[Rows](
        "settings-first",
        lambda rows: (rows.number("offset") == 0) & ~rows.of("SettingsChanged"),
        lambda rows, row: rows.text("type", row),
        lambda rows, row: "SettingsChanged",
    ),
    Check[Rows](
        "rejected-with-rule",
        lambda rows: (
            rows.of("CreateRejected", "ChangeRejected") & (rows.empty("rule") | (rows.number("error_code", 0) == 0))
        ),
        lambda rows, row: f"error {rows.text('error_code', row)}, rule {rows.text('rule', row)}",
        lambda rows, row: "an error code, and the rule that decided",
    ),
    Check[Rows](
        "created-as-asked",
        lambda rows: (
            rows.of("TopicCreated") & ((rows.number("deadline_ms") == ADOPTED_DEADLINE_MS) != rows.by(ADOPTED))
        ),
        lambda rows, row: (
            f"created by {rows.text('cause_command', row)} with the deadline {rows.text('deadline_ms', row)}"
        ),
        lambda rows, row: "no deadline for a topic that was taken over, and for no other",
    ),
    Check[Rows](
        "cause-exists",
        _without_cause,
        lambda rows, row: f"{rows.text('type', row)} by {rows.text('cause_command', row)} {rows.text('cause_id', row)}",
        lambda rows, row: "a command that leads to this event, of the same request",
    ),
)
"""What every event is checked for by itself."""
