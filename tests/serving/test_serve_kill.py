"""kill -9 at random moments under load: whatever was answered is there."""

from __future__ import annotations

import random
import time
from pathlib import Path

from events.catalog import TopicCreated
from tests.serving.service import Load, check_log, check_there, serving

ROUNDS = 8
CLIENTS = 3
CREATES = 150
"""Of each client in a round; they are soon sent, so that the killing falls among them."""


def test_every_create_that_was_answered_survives_kills_under_load(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    loads: list[Load] = []
    answered = 0
    try:
        for round_number in range(ROUNDS):
            with serving(tmp_path) as server:
                check_there(server.topics(), loads)
                ours = [Load(server.kafka, f"r{round_number}-c{n}", CREATES) for n in range(CLIENTS)]
                for load in ours:
                    load.start()
                time.sleep(rng.uniform(0.005, 0.2))
                server.process.kill()
                for load in ours:
                    load.done()
                loads += ours
                answered += sum(load.answers[0] for load in ours)
        with serving(tmp_path) as server:
            left = check_there(server.topics(), loads)
            assert server.process.stop() == 0
        records = check_log(tmp_path / "data")
    except BaseException as error:
        error.add_note(f"the kills were timed by seed {seed}; {answered} creates had been answered NONE")
        raise
    created = sum(isinstance(record.event, TopicCreated) for record in records)
    assert created >= answered > ROUNDS, "there was load"
    assert left > 0
