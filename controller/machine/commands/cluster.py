"""Observations of the target cluster."""

from __future__ import annotations

import msgspec

from controller.machine.commands import Command
from events.catalog import Configs
from events.names import BrokerId, TopicId, TopicName


class ObservedPartition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A partition in the cluster's metadata. `leader` is -1 if there is none."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int


class DiscoverTopic(Command, frozen=True, kw_only=True, gc=False):
    """The target cluster has this topic.

    `configs` are its explicit configs; None if they were not fetched. `known` is what was known of the topic at the
    time, its partition count and configs; None if there was no such topic. If that has changed since, the observation
    is stale and is ignored.
    """

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[ObservedPartition, ...]
    configs: Configs | None = None
    known: tuple[int, Configs] | None = None
    reason: str = ""


class DiscoverDeletion(Command, frozen=True, kw_only=True, gc=False):
    """The target cluster no longer has the topic with this id, although nobody deleted it here."""

    topic: TopicName
    topic_id: TopicId
    reason: str


class RefuseCreation(Command, frozen=True, kw_only=True, gc=False):
    """The target cluster refused to create a topic. `topic_id` is the id from the decision."""

    topic: TopicName
    topic_id: TopicId
    error_code: int
    message: str


class FinishChange(Command, frozen=True, kw_only=True, gc=False):
    """The target cluster carried out the change of `request_id`, or refused it with `error_code`."""

    topic: TopicName
    error_code: int = 0
    message: str = ""
