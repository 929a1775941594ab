"""The topic-config rules as deciding uses them."""

from __future__ import annotations

from controller.machine.commands import AlterTopicConfigs
from controller.machine.errors import Rejection
from controller.machine.state import Settings
from controller.machine.topic_config_changes import incremental_alter, replace_configs
from controller.machine.topic_configs import topic_config, validate_topic_configs
from events.catalog import Configs

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"


def config_rejection(configs: tuple[tuple[str, str | None], ...], settings: Settings) -> Rejection | None:
    """What is wrong with the configs of a create, or None."""
    return validate_topic_configs(configs, settings.topic_defaults)


def explicit_configs(configs: tuple[tuple[str, str | None], ...]) -> Configs:
    """The configs of a create as the topic keeps them: sorted; of a name given twice the last value, as in Kafka."""
    return tuple(sorted((name, value) for name, value in dict(configs).items() if value is not None))


def altered_configs(current: Configs, command: AlterTopicConfigs, settings: Settings) -> Configs | Rejection:
    """The explicit configs after a change, sorted, or why it is refused."""
    if command.incremental:
        return incremental_alter(current, command.ops, settings.topic_defaults)
    return replace_configs(current, [(op.name, op.value) for op in command.ops], settings.topic_defaults)


def min_insync_replicas(configs: Configs, settings: Settings) -> int:
    """How many replicas must be in sync for a record to be acknowledged: the topic's own setting, or the cluster's.

    1 where a topic of an older release has a value that is not valid any more.
    """
    value = topic_config(MIN_INSYNC_REPLICAS, configs, settings.topic_defaults)
    return value if isinstance(value, int) else 1


def allows_unclean_election(configs: Configs, settings: Settings) -> bool:
    """Whether a replica that is not in sync may lead, if no other can: the topic's own setting, or the cluster's."""
    return topic_config(UNCLEAN_ELECTION, configs, settings.topic_defaults) is True
