"""What a policy's author is promised (KIP-108)."""

from __future__ import annotations

import pytest

from controller.policy import CreateTopicPolicy, Observation, PolicyViolation, RequestMetadata


def test_counts_without_an_assignment() -> None:
    request = RequestMetadata(topic="a", num_partitions=1, replication_factor=2)
    assert request.replicas_assignments is None
    assert request.configs == {}


def test_an_assignment_without_counts() -> None:
    request = RequestMetadata(topic="a", replicas_assignments={0: (1, 2)})
    assert request.num_partitions is None
    assert request.replication_factor is None


@pytest.mark.parametrize(
    ("partitions", "factor", "assignments"),
    [
        (None, None, None),
        (1, None, None),
        (None, 1, None),
        (1, 1, {0: (1,)}),
        (1, None, {0: (1,)}),
        (None, 1, {0: (1,)}),
    ],
)
def test_counts_and_assignment_are_one_or_the_other(
    partitions: int | None, factor: int | None, assignments: dict[int, tuple[int, ...]] | None
) -> None:
    with pytest.raises(ValueError, match="both counts or an assignment"):
        RequestMetadata(
            topic="a", num_partitions=partitions, replication_factor=factor, replicas_assignments=assignments
        )


def test_a_request_cannot_be_changed() -> None:
    request = RequestMetadata(topic="a", num_partitions=1, replication_factor=1)
    with pytest.raises(AttributeError):
        request.topic = "b"  # type: ignore[misc]


def test_a_violation_carries_message_rule_and_observations() -> None:
    observation = Observation("rules/soon", "not yet")
    violation = PolicyViolation("no", rule="mine", observed=[observation])
    assert (str(violation), violation.message, violation.rule) == ("no", "no", "mine")
    assert violation.observed == (observation,)


def test_the_base_class_requires_validate_alone() -> None:
    with pytest.raises(TypeError, match="validate"):
        CreateTopicPolicy()  # type: ignore[abstract]

    class Mute(CreateTopicPolicy):
        def validate(self, request: RequestMetadata) -> None:
            return

    policy = Mute()
    policy.configure({})
    policy.close()
