"""What is observed of a Kafka cluster that carries decisions out."""

from __future__ import annotations

import msgspec

from controller.machine.commands import Command
from events.catalog import Configs
from events.names import BrokerId, TopicId, TopicName


class ObservedPartition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One partition as a cluster's metadata shows it; `leader` is -1 when there is none."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int


class DiscoverTopic(Command, frozen=True, kw_only=True, gc=False):
    """The cluster that carries decisions out has a topic so.

    `configs` are the explicit ones, None where they were not looked at. `known` is what was known of the topic when it
    was looked at, its partition count and configs, None if there was no such topic: where that has changed since, the
    look is out of date and changes nothing.
    """

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[ObservedPartition, ...]
    configs: Configs | None = None
    known: tuple[int, Configs] | None = None
    reason: str = ""


class DiscoverDeletion(Command, frozen=True, kw_only=True, gc=False):
    """The cluster that carries decisions out no longer has the topic of this id, though nobody requested that here."""

    topic: TopicName
    topic_id: TopicId
    reason: str


class RefuseCreation(Command, frozen=True, kw_only=True, gc=False):
    """The cluster refused to create a topic that was decided on. `topic_id` is the id that the decision gave it."""

    topic: TopicName
    topic_id: TopicId
    error_code: int
    message: str


class FinishChange(Command, frozen=True, kw_only=True, gc=False):
    """The cluster carried out the change that `request_id` decided for a topic, or refused to (`error_code`)."""

    topic: TopicName
    error_code: int = 0
    message: str = ""
