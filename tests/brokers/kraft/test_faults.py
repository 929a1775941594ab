"""Also with Kafka brokers an exception in one command fails only that command, and brokers see the actual state."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from msgspec.structs import replace

from controller.access.mutation_quotas import MutationQuotas
from controller.access.refusals import RefusalRecords
from controller.brokers.kraft.log import projection
from controller.brokers.kraft.log.batches import decode_batches, encode_batch
from controller.brokers.kraft.log.image import MetadataImage
from controller.brokers.kraft.log.projector import MetadataProjector
from controller.engine.decider import Decider, Faults, Limits
from controller.engine.requests import Replies, Stamps
from controller.machine.commands.access import RecordRefusals
from controller.machine.commands.commands import AnyCommand, CreateTopic, RegisterBroker
from events.codec import decode_event
from events.logs.memory_log import InMemoryLog
from events.names import TopicId
from projections.store.recorder import Recorder
from projections.store.store import TopicStore
from tests.brokers.kraft.logs import differences
from tests.engine.stage import BORN_MS, Heard
from tests.machine.rig import Rig, fold
from tests.machine.tables import command
from tests.simulation.virtual_time import on_virtual_time

BEGIN = ("quorum", "join 1", "join 2", "join 3", "unfence 1", "unfence 2", "unfence 3", "create t 3x3 timeout=0 id=q1")


class Deciding:
    """Decides like the group commit, on a log that Kafka brokers follow."""

    def __init__(self) -> None:
        self.log, self.heard, self.put = InMemoryLog("cluster"), Heard(), list[RecordRefusals]()
        self.projector = MetadataProjector(self.log)
        self.projector.log_end = lambda: self.end
        self.end, self.written = 0, list[bytes]()
        self.store = TopicStore(self.log)
        self.recorder = Recorder(self.log, self.store, self.projector)
        refusals = RefusalRecords(Stamps("b", lambda: BORN_MS), self.put.append)
        faults = Faults(self.heard, self.heard.command_failed, refusals)
        self.decider = Decider(faults.record, Limits(Replies(), MutationQuotas(), refusals))
        self._texts = Rig()

    def commit(self, *texts: str) -> list[Any]:
        decided = self.decider.decide(self.recorder, [self._command(text) for text in texts], lambda _: ())
        if decided.records:
            commit = self.recorder.take_commit()
            for pairs in self.projector.batches(self.log.next_offset, [entry.value for entry in commit.entries]):
                self.written.append(encode_batch(self.end, 1, BORN_MS, pairs))
                self.end += len(pairs)
            self.log.write(commit)
            self.log.flush()
            self.store.became_durable(self.recorder.state)
            self.projector.became_durable()
        return [answer.code for answer in decided.answers if answer.topic_name]

    def _command(self, text: str) -> AnyCommand:
        made = command(self._texts, text)
        if isinstance(made, CreateTopic):
            return replace(made, topic_id=TopicId(sha256(made.topic.encode()).digest()[:16]))
        if isinstance(made, RegisterBroker):
            return replace(made, incarnation=sha256(made.incarnation.encode()).hexdigest()[:32])
        return made

    def check(self) -> None:
        """Brokers see the state to which the log folds."""
        state = fold([decode_event(offset, value) for offset, value in self.log.read()])
        image = MetadataImage()
        image.fold(decode_batches(b"".join(self.written)))
        assert differences(image, state) == []


@pytest.mark.parametrize("text", ["create poison 3x3 id=q2", "partitions t to=9 id=q2", "delete t id=q2"])
def test_a_projection_error_fails_only_its_command(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @on_virtual_time
    async def story() -> None:
        one = Deciding()
        one.commit(*BEGIN)
        assert one.heard.failed == []
        real, wanted = projection.topic_records, "poison" if "poison" in text else "t"

        def topic_records(before: Any, after: Any, *more: Any) -> Any:
            records = real(before, after, *more)
            assert wanted not in [topic.name for topic in (before, after) if topic is not None], "planted"
            return records

        with monkeypatch.context() as patch:
            patch.setattr(projection, "topic_records", topic_records)
            came = one.commit("create u 1x2 timeout=0 id=q3", text, "create v 2x2 timeout=0 id=q4")
            assert came == [7, -1, 7], one.heard.lines
        assert one.heard.failed == [one.heard.lines[0]["command"]]
        one.check()
        assert one.store.durable_named("t") is not None
        assert one.commit(text) in ([], [0]), "without the exception it is decided"
        one.check()

    story()
