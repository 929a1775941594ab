"""Checks that need one event alone, and which commands may cause which events."""

from __future__ import annotations

from projections.replay.checks_told import Check, text, words

OWN = "own"
"""Marks commands whose request id is that of the events they cause."""

_LOOKED_AT = ("ReviewTopics", "ReportLeader")
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
        *_LOOKED_AT,
    ),
    "PartitionsAdded": ("CreatePartitions",),
    "TopicDeleted": ("DeleteTopic",),
    "TopicConfigsChanged": ("AlterTopicConfigs",),
    "ChangeRejected": _CHANGES,
    "LeaderElected": ("AlterTopicConfigs", "AlterPartition", "DiscoverTopic", *_LOOKED_AT),
    "IsrChanged": ("AlterTopicConfigs", "AlterPartition", "DiscoverTopic", *_LOOKED_AT),
    "PartitionChanged": (
        "AlterTopicConfigs",
        "AlterPartition",
        "AssignDirectories",
        "BalanceLeaders",
        "ElectLeaders",
        "ReassignPartitions",
        *_LOOKED_AT,
    ),
    "PlaceholderFilled": ("AlterTopicConfigs", *_LOOKED_AT),
    "MetadataPropagated": ("ConfirmMetadata",),
    "TopicReady": ("ConfirmMetadata", "DiscoverTopic", *_LOOKED_AT),
    "TopicDiscovered": ("DiscoverTopic",),
    "TopicVanished": _DISCOVERED,
    "CreationRefused": ("RefuseCreation",),
    "ChangeCarriedOut": ("FinishChange",),
    "BrokerRegistered": ("RegisterBroker", ADOPTED),
    "BrokerFenced": ("FenceBroker", "RegisterBroker"),
    "BrokerUnfenced": ("UnfenceBroker", ADOPTED),
    "BrokerUnregistered": ("UnregisterBroker",),
    "BrokerLeaving": ("BeginShutdown", ADOPTED),
    "LogDirsChanged": ("ChangeLogDirs",),
    "QuorumEpochBegun": ("BeginQuorumEpoch", ADOPTED),
    "MetadataAdopted": (ADOPTED,),
    "FeaturesChanged": ("BeginQuorumEpoch", "ChangeFeatures", ADOPTED),
    "ResourceConfigsChanged": ("AlterResourceConfigs", "BeginQuorumEpoch", "ChangeFeatures", ADOPTED),
    "ProducerIdsAllocated": ("AllocateProducerIds", ADOPTED),
    "SettingsChanged": ("ChangeSettings", ADOPTED),
    "ScramCredentialSet": ("AlterUserScramCredentials", ADOPTED),
    "ScramCredentialRemoved": ("AlterUserScramCredentials",),
    "AclsCreated": ("CreateAcls", ADOPTED),
    "AclsDeleted": ("DeleteAcls",),
    "QuotasChanged": ("AlterClientQuotas", ADOPTED),
    "AsksRefused": ("RecordRefusals",),
}
"""The commands that can lead to each event. A test keeps this in step with the catalog and with what logs hold."""

_OF_ITS_OWN = ("CreateTopic", "ExpireRequest")
_PAIRS = [f"{event}<{command}" for event, commands in CAUSES.items() for command in commands]

ROW_CHECKS = (
    Check("settings-first", "offset = 0 and type != 'SettingsChanged'", "type", "'SettingsChanged'"),
    Check(
        "rejected-with-rule",
        "type in ('CreateRejected', 'ChangeRejected') and (coalesce(rule, '') = '' or coalesce(error_code, 0) = 0)",
        text("'error '", "error_code", "', rule '", "rule"),
        "'an error code, and the rule that decided'",
    ),
    Check(
        "cause-exists",
        "coalesce(cause_id, '') = '' or cause_command is null "
        f"or concat(type, '<', cause_command) not in ({words(_PAIRS)}) or "
        f"(cause_command in ({words(_OF_ITS_OWN)}) and type like 'Create%' and cause_id != request_id) or "
        f"(cause_command in ({words(('CreateTopic', *_CHANGES))}) and "
        "type in ('TopicCreated', 'PartitionsAdded', 'TopicDeleted', 'TopicConfigsChanged', 'ChangeRejected') "
        "and cause_id != request_id) or (type = 'ChangeCarriedOut' and cause_id != request_id)",
        text("type", "' by '", "cause_command", "' '", "cause_id"),
        "'a command that leads to this event, of the same request'",
    ),
)
"""What every event is checked for by itself."""
