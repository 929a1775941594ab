"""The policy of the differential table; tests/reference/java/TablePolicy.java is the same in Java."""

from controller.policy import CreateTopicPolicy, PolicyViolation, RequestMetadata


class TablePolicy(CreateTopicPolicy):
    """Refuses, raises, or reports its input, depending on the first word of the topic's name."""

    def validate(self, request: RequestMetadata) -> None:
        topic = request.topic
        if topic.startswith("refused"):
            raise PolicyViolation(f"no topic may be called {topic}")
        if topic.startswith("mute"):
            raise PolicyViolation()
        if topic.startswith("boom"):
            raise RuntimeError(f"the policy fell over {topic}")
        if topic.startswith("echo"):
            raise PolicyViolation(_describe(request))


def _describe(request: RequestMetadata) -> str:
    def java(value: object) -> str:
        return "null" if value is None else str(value)

    assignments = request.replicas_assignments
    shown = assignments and "{" + ", ".join(f"{key}={list(assignments[key])}" for key in sorted(assignments)) + "}"
    configs = "{" + ", ".join(f"{key}={java(value)}" for key, value in sorted(request.configs.items())) + "}"
    counts = f"partitions={java(request.num_partitions)} factor={java(request.replication_factor)}"
    return f"{counts} assignments={java(shown)} configs={configs}"
