"""Decides on commands. The engine calls `decide` for every command, then `apply` for the events.

`decide(state, command)` returns the events that a command leads to, and its answers. It changes nothing and reads no
clock or random number: the same command on the same state always gives the same decision. `topics`, `observing`,
`target_cluster` and `partitions.requests` hold the control flow; `validation`, `topic_configs` and `partitions` hold
the rules.

A create is checked in this order: authorization, the request itself (duplicate, name, existing topic, collision,
counts, assignment, configs, live brokers), policies (KIP-108). If a create passes all other checks and has no verdict
yet, the decision is `needs_approval`; the engine asks the policies and resubmits the command with their verdict. With a
target cluster (`has.target.cluster`), the same happens until the command has the result of a dry run there.
"""

from collections.abc import Callable, Collection
from typing import Any

from msgspec.structs import replace

from controller.machine import observing, target_cluster, topics
from controller.machine.access import requests as of_access
from controller.machine.commands import access, commands
from controller.machine.configs import changes
from controller.machine.decision import NOTHING, Decision
from controller.machine.partitions import requests
from controller.machine.rules import approval, judging
from controller.machine.state import State
from events.access import LoginSecretDrawn
from events.catalog import CreateRequested, FilledDefault, RulesObserved


def decide(state: State, command: commands.AnyCommand) -> Decision:
    """Returns the decision on any type of command. Pure."""
    refused = topics.labels_refused(state, command)
    if refused is not None:
        return refused
    if getattr(command, "approval", None) is not None:
        assert isinstance(command, commands.TopicCommand), "other commands cannot be approved"
        return approval.approve(state, command, lambda approved: _decided(state, command, approved))
    return _decided(state, command, ())


def _decided(state: State, command: Any, approved: Collection[str]) -> Decision:
    if state.cluster.rules is None or type(command) not in judging.KIND_OF:
        return _DECIDERS[type(command)](state, command)
    return _by_rules(state, command, approved)


def _by_rules(state: State, command: Any, approved: Collection[str]) -> Decision:
    """Decides on a change with the defaults that the rules fill in, then checks the result against the rules, except
    the approved ones."""
    given = command
    defaults: tuple[FilledDefault, ...] = ()
    rules = judging.rules_of(state.cluster)
    if rules.defaults and isinstance(command, commands.CreateTopic):
        command, defaults = judging.filled(state, command)
    decision = _DECIDERS[type(command)](state, command)
    judgement = judging.judge_decision(rules, state, command, decision, approved)
    if judgement is judging.ALLOWED and not defaults:
        return decision
    rejection, held = judgement.rejection(defaults), None
    if rejection is None and judgement.held:
        rejection, held = approval.hold(state, given, judgement.held)
    if rejection is not None:
        decision = topics.rejected(command, rejection)
    if held is not None:  # the refusal is recorded in any case
        decision = replace(decision, refusal=None)
    waits = () if held is None else (held,)
    if not (defaults or judgement.warned or judgement.observed):
        return replace(decision, events=(*decision.events, *waits)) if waits else decision
    kind, noted = judging.KIND_OF[type(command)], (judgement.warned, judgement.observed, defaults)
    observed = RulesObserved(command.request_id, command.topic, kind, *noted, getattr(command, "principal", ""))
    if observed.warned and rejection is None:
        answers = (replace(each, message=each.message or observed.warning) for each in decision.answers)
        decision = replace(decision, answers=tuple(answers))
    events = decision.events
    if defaults and events:  # the request stays recorded as the client sent it
        assert isinstance(events[0], CreateRequested), "a decision on a create begins with the request"
        events = (topics.requested(given, events[0].deadline_ms), *events[1:])
    return replace(decision, events=(*events, observed, *waits) if events else ())


_DECIDERS: dict[type, Callable[[State, Any], Decision]] = {
    commands.CreateTopic: topics.create_topic,
    commands.CreatePartitions: topics.create_partitions,
    commands.DeleteTopic: topics.delete_topic,
    commands.AlterTopicConfigs: topics.alter_configs,
    commands.RegisterBroker: observing.register,
    **dict.fromkeys(commands.RegisteredCommand.__subclasses__(), observing.change_broker),
    commands.ReconcileTopics: observing.reconcile,
    commands.AlterPartition: requests.alter_partition,
    commands.AlterUserScramCredentials: of_access.alter_credentials,
    access.DrawLoginSecret: lambda state, command: (  # several gateways may send it at once
        NOTHING if state.cluster.login_secret else Decision((LoginSecretDrawn(command.secret),))
    ),
    commands.AssignDirectories: requests.assign_directories,
    commands.AllocateProducerIds: requests.allocate_producer_ids,
    commands.ElectLeaders: requests.elect_leaders,
    commands.BalanceLeaders: requests.balance_leaders,
    commands.ReassignPartitions: requests.reassign_partitions,
    commands.AlterResourceConfigs: changes.alter,
    commands.CopyClusterState: changes.copy,
    commands.ConfirmMetadata: observing.confirm,
    commands.ExpireRequest: observing.expire,
    commands.DiscoverTopic: target_cluster.discover,
    commands.DiscoverDeletion: target_cluster.discover_deletion,
    commands.RefuseCreation: target_cluster.refuse_creation,
    commands.FinishChange: target_cluster.finish_change,
    commands.ChangeSettings: observing.change_settings,
    commands.RecordHead: lambda state, command: Decision((command.head,)),
    access.ApplyRules: judging.apply_rules,
    access.EndApprovals: approval.end,
    access.CreateAcls: of_access.create_acls,
    access.DeleteAcls: of_access.delete_acls,
    access.AlterClientQuotas: of_access.alter_client_quotas,
    access.RecordRefusals: lambda state, command: Decision(command.refusals),
    commands.BeginQuorumEpoch: observing.begin_epoch,
    commands.ChangeFeatures: observing.change_features,
}
COMMANDS = tuple(_DECIDERS)
"""All concrete types of commands."""
