"""After each kill -9, rebuilt and live state are equal, before any recovery."""

import random
import threading
import time
from pathlib import Path

from events.logs.rocksdb_recovery import lock_holder
from projections.replay.log.log_ref import open_ref
from projections.replay.outcome import Options
from projections.replay.rebuild.compare import run_compare
from projections.replay.runner import InProcess
from tests.support.processes import Process
from tests.support.topicwright import COMMAND, fetch

ROUNDS = 3


def created_until_it_dies(http: str, prefix: str, answered: list[str]) -> None:
    """Create topics, and sometimes stop a broker, until the server no longer answers."""
    for number in range(100_000):
        name = f"{prefix}.topic-{number}"
        try:
            if fetch(http, "/v1/topics", {"name": name, "num_partitions": 3, "timeout_ms": 0})[0] < 300:
                answered.append(name)
            if number % 20 == 19:
                change = "stop" if number % 40 == 19 else "start"
                fetch(http, f"/v1/simulated/brokers/2/{change}", method="POST")
        except OSError:
            return


def test_rebuilt_and_live_state_match_after_each_kill(tmp_path: Path) -> None:
    data, rng = tmp_path / "data", random.Random(4)
    argv: list[str | Path] = [COMMAND, "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", data]
    answered: list[str] = []
    for round_number in range(ROUNDS):
        with Process(argv, cwd=tmp_path) as service:
            http = service.wait_for_line(r"^ready kafka=\S+ http=(\S+)$", within_s=60)[1]
            prefix = f"round-{round_number}"
            client = threading.Thread(target=created_until_it_dies, args=(http, prefix, answered))
            client.start()
            while not any(name.startswith(prefix) for name in answered):
                time.sleep(0.01)
            time.sleep(rng.uniform(0.2, 1.0))
            service.kill()
            client.join()
        assert lock_holder(data / "LOCK") is None
        outcome = run_compare(InProcess(), open_ref(str(data)), Options())
        assert not outcome.found, "\n".join(outcome.lines)
        assert int(outcome.lines[0].split()[4]) >= len(answered), "every acknowledged topic is in the log"
