"""Policies on virtual time: slow at will, refusing by name, failing, or gone before they answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from controller.policy.chain import ALLOWED
from controller.policy.interface import Request
from controller.policy.runner import PolicyRunnerClosed, Verdicts
from events.catalog import Verdict

MOODY = 0.3


class SlowPolicies:
    """Judges one request after another, as the runner does on its thread.

    A topic costs from `seconds[0]` to `seconds[1]`. Names that begin with `bad` are refused, those with `odd` make the
    policy fail; of `moody` ones it says now this and now that, as foreign code may. `judged` has every topic in the
    order of judging.
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
