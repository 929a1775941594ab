"""What a listener does for a mutation quota that is exhausted (KIP-599, KIP-219): the answer says for how long, and
until then nothing more is read from the connection that it came by."""

from __future__ import annotations

from controller.kafka.handling import RequestContext
from controller.runtime.front import Front
from controller.runtime.mutation_quotas import Throttle


def throttle_ms(front: Front, context: RequestContext, throttle: Throttle) -> int:
    """What to answer as `throttle_time_ms`; begins the silence."""
    left_ms = throttle.left_ms(front.controller.now_ms())
    if left_ms:
        context.connection.mute(left_ms / 1000)
    return left_ms
