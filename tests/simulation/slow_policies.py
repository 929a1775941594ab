"""Policies on virtual time: they can be slow, refuse or fail by topic name, or be closed before they answer."""

import asyncio
import random
from collections.abc import Sequence

from controller.policy.chain import ALLOWED, PolicyRunnerClosed, Verdicts
from controller.policy.interface import Request
from events.catalog import Verdict

MOODY = 0.3


class SlowPolicies:
    """Judges requests one at a time, as the policy runner does on its thread.

    A topic takes from `seconds[0]` to `seconds[1]`. The policy refuses names that begin with `bad` and fails for `odd`.
    For `moody` its verdict is random, because user code may be non-deterministic. `judged` lists the topics in order.
    """

    def __init__(self, rng: random.Random, seconds: tuple[float, float] = (0.0, 0.0)) -> None:
        self.seconds = seconds
        self.judged: list[str] = []
        self._rng = rng
        self._turn = asyncio.Lock()
        self._closed = False

    async def judge(self, requests: Sequence[Request]) -> Verdicts:
        async with self._turn:
            verdicts = []
            for request in requests:
                await asyncio.sleep(self._rng.uniform(*self.seconds))
                if self._closed:
                    raise PolicyRunnerClosed("closed")
                self.judged.append(request.topic)
                verdicts.append(self._verdict(request.topic))
            return tuple(verdicts)

    async def close(self, timeout_s: float) -> tuple[str, ...]:
        self._closed = True
        return ()

    def _verdict(self, topic: str) -> Verdict:
        if topic.startswith("bad") or (topic.startswith("moody") and self._rng.random() < MOODY):
            return Verdict("refused", "slow.Policy", "policy:slow.Policy", f"{topic} is bad")
        if topic.startswith("odd"):
            return Verdict("failed", "slow.Policy", "policy:slow.Policy", f"{topic} is odd")
        return ALLOWED
