"""Commands to decisions.

`decide(state, command)` reads the state and returns the events that the command leads to, with the answers that they
give. It changes nothing, asks no clock and draws no lots: the same command on the same state always gives the same
decision. Control flow is in `creating`, `changing` and `observing`; the rules are in `validation`, `topic_configs`,
`placement`, `leadership` and `readiness`; `discovering` decides on what another cluster turns out to be like.

A create is checked in this order: authorization, then the request (duplicate, name, exists, collision, counts,
assignment, configs, live brokers), then policy (KIP-108). Policies are foreign code and run outside: a create that
passes everything else while policies are set and have not been asked comes back with `consult`, and is put again with
their verdict. Where a cluster carries decisions out (`cluster.carries.out`), an ask that passes comes back in the same
way until the cluster has been asked too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.machine import (
    access,
    changing,
    creating,
    credentials,
    discovering,
    observing,
    partition_asks,
    partition_reports,
    quorum,
    quotas,
    resource_configs,
)
from controller.machine.commands import (
    AllocateProducerIds,
    AlterClientQuotas,
    AlterPartition,
    AlterResourceConfigs,
    AlterTopicConfigs,
    AlterUserScramCredentials,
    AnyCommand,
    AssignDirectories,
    BalanceLeaders,
    BeginQuorumEpoch,
    BeginShutdown,
    ChangeFeatures,
    ChangeLogDirs,
    ChangeSettings,
    ConfirmMetadata,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    DeleteAcls,
    DeleteTopic,
    DiscoverDeletion,
    DiscoverTopic,
    ElectLeaders,
    ExpireRequest,
    FenceBroker,
    FinishChange,
    ReassignPartitions,
    RecordRefusals,
    RefuseCreation,
    RegisterBroker,
    ReportLeader,
    ReviewTopics,
    UnfenceBroker,
    UnregisterBroker,
)
from controller.machine.decision import Decision
from controller.machine.state import State


def decide(state: State, command: AnyCommand) -> Decision:
    """What a command leads to on a state. Pure, and total over commands."""
    return _DECIDERS[type(command)](state, command)


_DECIDERS: dict[type, Callable[[State, Any], Decision]] = {
    CreateTopic: creating.create_topic,
    CreatePartitions: changing.create_partitions,
    DeleteTopic: changing.delete_topic,
    AlterTopicConfigs: changing.alter_configs,
    RegisterBroker: observing.register,
    UnregisterBroker: observing.unregister,
    FenceBroker: observing.fence,
    UnfenceBroker: observing.unfence,
    ReviewTopics: observing.review,
    AlterPartition: observing.alter_partition,
    AlterUserScramCredentials: credentials.alter_credentials,
    AssignDirectories: partition_reports.assign_directories,
    AllocateProducerIds: partition_reports.allocate_producer_ids,
    ElectLeaders: partition_asks.elect_leaders,
    BalanceLeaders: partition_asks.balance_leaders,
    ReassignPartitions: partition_asks.reassign_partitions,
    AlterResourceConfigs: resource_configs.alter,
    ConfirmMetadata: observing.confirm,
    ReportLeader: observing.report_leader,
    ExpireRequest: observing.expire,
    DiscoverTopic: discovering.discover,
    DiscoverDeletion: discovering.discover_deletion,
    RefuseCreation: discovering.refuse_creation,
    FinishChange: discovering.finish_change,
    ChangeSettings: observing.change_settings,
    CreateAcls: access.create_acls,
    DeleteAcls: access.delete_acls,
    AlterClientQuotas: quotas.alter_client_quotas,
    RecordRefusals: access.record_refusals,
    BeginQuorumEpoch: quorum.begin_epoch,
    ChangeFeatures: quorum.change_features,
    BeginShutdown: quorum.begin_shutdown,
    ChangeLogDirs: quorum.change_log_dirs,
}
