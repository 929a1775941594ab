"""Whether all voters of Topicwright have the same events: each batch that one of them leads shows the root of the tree
over all events before it, and who follows has the same at the same offset, or something was changed, lost or decided
otherwise on one side.

Then the others are requested for theirs (`missed`). Who differs from most of them does not lead, and gets no vote of
the others; where there is no majority, it is said, and that is all. A voter with a gap in its history counts its events
otherwise, and has no offset in common.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from controller.brokers.kraft.missed import root_at
from controller.brokers.kraft.quorum.node import QuorumNode
from events.logs.heads import differing
from events.logs.log import EventLog
from projections.store.tree import stored_head

AGAIN_S: Final = 60.0
"""A difference stays: it is looked at and logged again so seldom."""

logger = structlog.get_logger("topicwright.quorum")


class Heads:
    """The head of one voter's event log, beside those that others show."""

    def __init__(self, node: QuorumNode, log: EventLog) -> None:
        self._node, self._log = node, log
        self._looking: asyncio.Task[None] | None = None
        self._look_at = 0.0
        self.trouble: str | None = None
        """Where the events of voters differ, in words; None where none do."""
        self.is_wrong = False
        """Whether it is this voter that differs from most."""

    def shown(self, leader_id: int, size: int, root: bytes) -> None:
        """Who leads has this root over its first `size` events; this voter has so many now. Raises LogError."""
        kept, mine = stored_head(self._log)
        loop = asyncio.get_running_loop()
        if kept != size or mine == root or loop.time() < self._look_at:
            return
        self._look_at = loop.time() + AGAIN_S
        self._looking = loop.create_task(self._look(size, {leader_id: root, self._node.quorum.me.id: mine}))

    async def _look(self, size: int, roots: dict[int, bytes]) -> None:
        core = self._node.quorum
        for place in await self._node.of_topicwright():
            voter = next((each.id for each in core.others if core.place_of(each) == place), None)
            if voter is not None and voter not in roots:
                root = await root_at(self._node, place, size)
                if root is not None:
                    roots[voter] = root
        root, others = differing(roots)
        who = ", ".join(map(str, sorted(others)))
        self.trouble = f"below event {size} voters have other events than most: {who}"
        if root is None:
            self.trouble = f"below event {size} voters {who} have different events"
        logger.error("voters have different histories", why=self.trouble, roots={k: v.hex() for k, v in roots.items()})
        self.is_wrong = root is not None and core.me.id in others
        if root is not None:
            core.distrusted = others
        if self.is_wrong:
            self._node.veto(False)
