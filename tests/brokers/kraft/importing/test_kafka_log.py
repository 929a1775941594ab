"""The log that a controller of Kafka 4.3 wrote, followed from its first batch to its last: a golden file, its bytes."""

from __future__ import annotations

from pathlib import Path

from controller.brokers.kraft.importing.batch import Transactions, numbered
from controller.brokers.kraft.log.batches import decode_batches
from tests.brokers.kraft.importing.following import Follower
from tests.machine.audit.auditor import audit
from tests.machine.audit.lives import Lives
from tests.machine.audit.real_auditor import RealAuditor

GOLDEN = Path(__file__).parents[3] / "golden" / "kafka-4.3-metadata.log"


def test_the_state_says_what_kafka_wrote() -> None:
    follower, transactions = Follower(node_id=1), Transactions()
    for batch in decode_batches(GOLDEN.read_bytes()):
        follower.epoch, follower.offset = batch.leader_epoch, batch.base_offset
        counting = transactions.complete(numbered(batch))
        follower.take(*(record for _, record in counting))
        assert follower.differences() == [], f"after the batch at offset {batch.base_offset}"
    assert (follower.unsupported, transactions.begun_at) == (None, None)
    assert follower.state.cluster.live == (1, 2, 3)
    assert follower.topics()
    assert {each.check for each in audit(follower.log, of=RealAuditor)} == {"settings-first"}, "our own come first"
    Lives().see_all(follower.log)
