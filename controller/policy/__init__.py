"""Policies: code of the operator that accepts or refuses new topics (KIP-108) and changes of configs (KIP-133).

    from controller.policy import CreateTopicPolicy, PolicyViolation, RequestMetadata

    class Owned(CreateTopicPolicy):
        def validate(self, request: RequestMetadata) -> None:
            if "." not in request.topic:
                raise PolicyViolation(f"topic name '{request.topic}' does not begin with its team, as in 'pay.orders'")

`interface` is for authors of policies; `loading` imports classes by name and reads files of rules; `chain` combines
several policies and runs them outside the event loop. Rules in a file need no code: see `controller.machine.rules`.
"""

from controller.policy.interface import AlterConfigMetadata as AlterConfigMetadata
from controller.policy.interface import AlterConfigPolicy as AlterConfigPolicy
from controller.policy.interface import CreateTopicPolicy as CreateTopicPolicy
from controller.policy.interface import PolicyViolation as PolicyViolation
from controller.policy.interface import RequestMetadata as RequestMetadata
from events.catalog import Observation as Observation
