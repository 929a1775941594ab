"""What is looked at again and again by who leads: sessions that end, features that all brokers share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from controller.brokers.kraft.epoch import KraftOptions
from controller.brokers.kraft.features import Features, features_at, shared_metadata_version
from controller.brokers.kraft.log.batches import BrokenBatch
from controller.brokers.kraft.log.metadata_codec import MalformedRecord
from controller.brokers.kraft.log.projection import METADATA_VERSION_FEATURE
from controller.brokers.kraft.membership import Membership
from controller.brokers.kraft.quorum.registered import why_unsupported
from controller.brokers.kraft.replication import QuorumReplication
from controller.brokers.port import CommandSink, stamp
from controller.machine.commands.commands import ChangeFeatures, FenceBroker

CHECK_S: Final = 0.25
"""How often sessions are looked at: a small part of the shortest session timeout that is of use."""
SETTLED_S: Final = 3.0
"""How long no broker may have come before the features that all of them share are taken."""

logger = structlog.get_logger("topicwright.kraft")


class Checks:
    """The checks of one fleet."""

    def __init__(
        self,
        controller: CommandSink,
        replication: QuorumReplication,
        membership: Membership,
        options: KraftOptions,
        is_adopted: Callable[[], bool],
    ) -> None:
        self._controller = controller
        self._replication = replication
        self._membership = membership
        self._options = options
        self._is_adopted = is_adopted

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            if not self._replication.leads:
                continue
            for broker_id in self._membership.expired():
                logger.warning("broker session expired", broker=broker_id)
                stamped = stamp(self._controller, "kraft")
                self._controller.submit_internal(FenceBroker(**stamped, broker_id=broker_id, reason="session expired"))
            if self._membership.unchanged_for_s() > SETTLED_S:
                await self._raise_features()

    async def _raise_features(self) -> None:
        """Take the metadata.version that the options have, or the highest that all brokers share, with the features
        that go with it, once the brokers that are coming have come and all support it, and all other voters too."""
        cluster = self._membership.cluster
        brokers = cluster.brokers.values()
        shared = shared_metadata_version(brokers)
        if shared is None or not brokers or any(broker.fenced for broker in brokers):
            return
        wanted = self._options.metadata_version
        if wanted is None and self._is_adopted():
            return  # the cluster's own controller left it at its level, and may come back
        level = shared if wanted is None else min(wanted, shared)
        if level > cluster.feature(METADATA_VERSION_FEATURE):
            reason = "the highest that all brokers share" if wanted is None else "--metadata-version"
            features = self._features_with(level)
            self._membership.restart_unchanged()
            if await self._voters_support(features):
                stamped = stamp(self._controller, "kraft")
                self._controller.submit_internal(ChangeFeatures(**stamped, features=features, reason=reason))

    async def _voters_support(self, features: Features) -> bool:
        """A controller of Kafka's that does not support a level ends when it replays the record."""
        others = {each.id for each in self._replication.quorum.others}
        if not others:
            return True
        try:
            registered = await self._replication.registered.all()
        except (OSError, BrokenBatch, MalformedRecord) as error:
            logger.warning("metadata.version is not raised: registrations cannot be read", why=str(error))
            return False
        for name, level in features:
            why = why_unsupported(registered, others, name, level)
            if why is not None:
                logger.warning("metadata.version is not raised", feature=name, level=level, why=why)
                return False
        return True

    def _features_with(self, level: int) -> Features:
        """The features at a level, none of them below what it is."""
        cluster = self._membership.cluster
        features = dict(features_at(level, cluster.brokers.values()))
        for name, had in cluster.features:
            features[name] = max(had, features.get(name, 0))
        return tuple(sorted(features.items()))
