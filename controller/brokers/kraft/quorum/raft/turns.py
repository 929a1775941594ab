"""When the voters that follow a leader get its responses: in turn, so that when it dies one of them wins in one go.

A voter of Kafka stands when the fetch timeout has passed since its last response. Two that got theirs at the same
moment stand at the same moment, each with its own vote, and nobody leads for a second and a half more. So each has its
own moment within a quarter of the fetch timeout, after that of the first in order. And those of Kafka's that no
commit needs get what is new then too, instead of at once: of three voters one, of five two. Such a voter has less of
the log than the others, and misses the leader first: it is refused, knows then that the leader is gone, and votes for
who has all.

The order is that of the last commit: who had it first. As soon as a commit waits too long, all get all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from controller.brokers.kraft.quorum.raft.effects import PRE_VOTE_SINCE, Peer
from controller.brokers.kraft.quorum.raft.progress import Progress

if TYPE_CHECKING:
    from controller.brokers.kraft.quorum.raft.core import Quorum

APART_S: Final = 0.03
"""Between the last responses to two voters, where all get what is new at once: soon, before there is more of it."""
PATIENCE_S: Final = 0.05
"""For a majority to have what was appended, before those that were not needed for it are."""
SHARE: Final = 0.25
"""Of the fetch timeout, for which a fetch is held at most: it runs meanwhile."""
_UNKNOWN: Final = Peer(0, 0)


class Turns:
    """Of one epoch of a leader."""

    def __init__(self, core: Quorum, progress: Progress) -> None:
        self._core, self._progress = core, progress
        self._order: tuple[int, ...] = ()
        self._spare: frozenset[int] = frozenset()
        self._first_at = -math.inf
        self._had = -1
        self._lacks_since = math.inf

    def committed(self) -> None:
        """More is committed: who has it comes first, of Kafka's. None but Kafka's is spare: voters of ours stand a
        random moment later, with less of the log too late, and one that is to claim the lead takes a fetch that is
        held for a sign that there is nothing new. Nor is any where somebody knows no pre-vote: who stands in vain
        begins an epoch then."""
        core = self._core
        shown = {each.id: core.peers.get(core.place_of(each), _UNKNOWN) for each in core.others}
        ends = {each.id: self._progress.of(each).end for each in core.others}
        order = sorted(shown, key=lambda each: (shown[each].priority is not None, -ends[each], each))
        needed = core.voters.majority - (core.me.id in core.voters.by_id)
        sounded_out = all(each.vote_version >= PRE_VOTE_SINCE for each in shown.values())
        later = [each for each in order[needed:] if sounded_out and shown[each].priority is None]
        self._order, self._spare = tuple(order), frozenset(later)

    def counted(self, now: float) -> None:
        """The log has more, or a voter has more of it."""
        core = self._core
        had = self._progress.majority_end(core.voters, core.me.id, core.log.end)
        if had >= core.log.end:
            self._lacks_since = math.inf
        elif had > self._had or self._lacks_since == math.inf:
            self._lacks_since = now
        self._had = had

    def responded(self, now: float, replica: int) -> None:
        """A voter got a response."""
        if self._order[:1] == (replica,):
            self._first_at = now

    @property
    def all_at(self) -> float:
        """From when on nobody is spare."""
        return self._lacks_since + PATIENCE_S

    def is_spare(self, now: float, replica: int) -> bool:
        """Whether it gets what is new in its turn only. Who has yet to catch up does not."""
        if replica not in self._spare or now >= self.all_at or replica not in self._core.voters.by_id:
            return False
        seen = self._progress.of(self._core.voters.by_id[replica])
        return now - seen.caught_up_at < self._core.options.fetch_timeout_s

    def due(self, replica: int, since: float, until: float) -> float:
        """When a fetch gets its response, which came in at `since` and waits until then at most."""
        turn = self._first_at + self._turn_s(replica)
        return min(turn, until) if turn > max(since, self._first_at) else until

    def is_over(self, now: float, replica: int, since: float) -> bool:
        """Whether a fetch has waited for its turn."""
        return now >= since + self._turn_s(replica)

    def _turn_s(self, replica: int) -> float:
        place = self._order.index(replica) if replica in self._order else 0
        quarter_s = SHARE * self._core.options.fetch_timeout_s
        return place * (quarter_s / len(self._order) if self._spare else APART_S)
