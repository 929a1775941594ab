"""Create-topic policies (KIP-108): an operator's own say in which topics may be created.

    from controller.policy import CreateTopicPolicy, PolicyViolation, RequestMetadata

    class Owned(CreateTopicPolicy):
        def validate(self, request: RequestMetadata) -> None:
            if "." not in request.topic:
                raise PolicyViolation(f"topic name '{request.topic}' does not begin with its team, as in 'pay.orders'")

`interface` is what a policy sees; `loading` finds classes by name; `chain` calls several in a row and makes one verdict
of it; `runner` does so off the event loop; `rules` is a ready-made policy whose rules are in a file.
"""

from controller.policy.interface import CreateTopicPolicy, PolicyViolation, RequestMetadata
from events.catalog import Observation

__all__ = ["CreateTopicPolicy", "Observation", "PolicyViolation", "RequestMetadata"]
