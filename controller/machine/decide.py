"""Commands to decisions.

`decide(state, command)` reads the state and returns the events that the command leads to, with the answers that they
give. It changes nothing, asks no clock and draws no lots: the same command on the same state always gives the same
decision. Control flow is in `creating`, `changing` and `observing`; the rules are in `validation`, `topic_configs`,
`placement`, `leadership` and `readiness`; `discovering` decides on what another cluster turns out to be like.

A create is checked in this order: authorization, then the request (duplicate, name, exists, collision, counts,
assignment, configs, live brokers), then policy (KIP-108). Policies are external_error code and run outside: a create that
passes everything else while policies are set and have not been asked comes back with `needs_approval`, and is put again with
their verdict. Where a cluster carries decisions out (`has.target.cluster`), a command that passes comes back in the
same way until the cluster has been asked too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.machine import observing, target_cluster, topics
from controller.machine.access import credentials, permissions, quotas
from controller.machine.commands import access, cluster, commands
from controller.machine.configs import changes
from controller.machine.decision import Decision
from controller.machine.partitions import requests
from controller.machine.state import State
from controller.machine.truncation import truncated_refusal


def decide(state: State, command: commands.AnyCommand) -> Decision:
    """What a command leads to on a state. Pure, and total over commands. Refusals are cut to what is kept of them."""
    decision = decide_in_full(state, command)
    if decision.refusal is None:
        return decision
    assert isinstance(command, commands.TopicCommand), "nothing else is refused by a rule"
    return truncated_refusal(state, command, decision, decide_in_full)


def decide_in_full(state: State, command: commands.AnyCommand) -> Decision:
    """The same with refusals as they were requested. For a command as it was kept it is the same; of earlier releases
    the log has all of it."""
    return _DECIDERS[type(command)](state, command)


_DECIDERS: dict[type, Callable[[State, Any], Decision]] = {
    commands.CreateTopic: topics.create_topic,
    commands.CreatePartitions: topics.create_partitions,
    commands.DeleteTopic: topics.delete_topic,
    commands.AlterTopicConfigs: topics.alter_configs,
    commands.RegisterBroker: observing.register,
    commands.UnregisterBroker: observing.unregister,
    commands.FenceBroker: observing.fence,
    commands.UnfenceBroker: observing.unfence,
    commands.ReconcileTopics: observing.reconcile,
    commands.AlterPartition: observing.alter_partition,
    access.AlterUserScramCredentials: credentials.alter_credentials,
    access.DrawLoginSecret: credentials.draw_secret,
    commands.AssignDirectories: requests.assign_directories,
    commands.AllocateProducerIds: requests.allocate_producer_ids,
    commands.ElectLeaders: requests.elect_leaders,
    commands.BalanceLeaders: requests.balance_leaders,
    commands.ReassignPartitions: requests.reassign_partitions,
    commands.AlterResourceConfigs: changes.alter,
    commands.CopyBrokerConfigs: changes.copy,
    commands.ConfirmMetadata: observing.confirm,
    commands.ReportLeader: observing.report_leader,
    commands.ExpireRequest: observing.expire,
    cluster.DiscoverTopic: target_cluster.discover,
    cluster.DiscoverDeletion: target_cluster.discover_deletion,
    cluster.RefuseCreation: target_cluster.refuse_creation,
    cluster.FinishChange: target_cluster.finish_change,
    commands.ChangeSettings: observing.change_settings,
    commands.RecordHead: observing.record_head,
    access.CreateAcls: permissions.create_acls,
    access.DeleteAcls: permissions.delete_acls,
    access.AlterClientQuotas: quotas.alter_client_quotas,
    access.RecordRefusals: permissions.record_refusals,
    commands.BeginQuorumEpoch: observing.begin_epoch,
    commands.ChangeFeatures: observing.change_features,
    commands.BeginShutdown: observing.begin_shutdown,
    commands.ChangeLogDirs: observing.change_log_dirs,
}
