"""Which change of brokers an event of a topic follows from."""

from __future__ import annotations

import pytest

from projections.queries.explain import explain
from tests.projections.logs import questions_of, story

THREE = """fewer
quorum elr
join 1
join 2
join 3
unfence 1
unfence 2
unfence 3
create t 1x3 timeout=0 id=c0
alter t set:min.insync.replicas=3 id=c1"""

# after three brokers with a topic on all of them and min.insync.replicas=3: what happens, and what the last
# event follows from
CASES = {
    "a broker that came back after an unclean end, while another was fenced": (
        "fence 2; review t; join 2 as=second unclean; fence 3; review t",
        # 3 left the in-sync set in the same step, later
        "broker 3 is fenced (why)",
    ),
    "a broker that came back after an unclean end": (
        "fence 2; fence 3; review t; join 2 as=second unclean; review t",
        "broker 2 registers, with epoch 4, after an unclean end",
    ),
    "a live broker that registers anew after an unclean end": (
        "join 2 as=second unclean; review t",
        "broker 2 registers, with epoch 4, after an unclean end",
    ),
    "a live broker that registers anew after it ended in order": (
        "join 2 as=second; review t",
        "broker 2 is fenced (registered anew)",
    ),
    "one that has no replica of the topic went too": (
        "join 4; unfence 4; fence 2; fence 4; review t",
        "broker 2 is fenced (why)",
    ),
    "a broker that leaves": ("leave 2; fence 4; review t", "broker 2 begins controlled shutdown"),
    "a directory that failed": (
        "join 4; unfence 4; dirs 2 77; fence 4; review t",
        "broker 2 has 1 log directory online",
    ),
    "a broker that is back, and in sync by its leader's word": (
        "fence 2; review t; unfence 2; report t by=3 0:3.1.2:0:1",
        "broker 2 is live (why)",
    ),
    "a replica that is slow": ("report t by=3 0:3.1:0:0", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_the_change_that_concerns_the_partition_is_named(name: str) -> None:
    steps, because = CASES[name]
    rig = story(f"{THREE}\n{steps}".replace("; ", "\n"))
    step = explain(questions_of(rig.log), "t").steps[-1]
    assert step.event == "PartitionChanged", step
    assert step.because.partition(" at offset ")[0] == because, step
    if because:
        number = int(step.because.rpartition(" ")[2])
        assert number < step.offset, "it was before"
