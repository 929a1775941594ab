"""Create-topic policies (KIP-108): code of the operator that accepts or refuses new topics.

    from controller.policy import CreateTopicPolicy, PolicyViolation, RequestMetadata

    class Owned(CreateTopicPolicy):
        def validate(self, request: RequestMetadata) -> None:
            if "." not in request.topic:
                raise PolicyViolation(f"topic name '{request.topic}' does not begin with its team, as in 'pay.orders'")

`interface` is for authors of policies; `loading` imports classes by name; `chain` combines several policies; `runner`
runs them outside the event loop. Rules in a file need no code: see `controller.machine.rules`.
"""

from controller.policy.interface import CreateTopicPolicy, PolicyViolation, RequestMetadata
from events.catalog import Observation

__all__ = ["CreateTopicPolicy", "Observation", "PolicyViolation", "RequestMetadata"]
