"""Checks responses to brokers: each must be one that Kafka gives for a state between the request and the response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from controller.kafka.messages import cluster
from controller.machine.errors import ErrorCode as Code
from tests.simulation.brokers.machine import Key

if TYPE_CHECKING:
    from tests.simulation.brokers.broker import Broker
    from tests.simulation.brokers.world import World

ANY = -1


class Answers:
    """Checks each response. `since` is the number of durable events when the request was sent."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._witness = world.witness
        self._leaders: dict[tuple[Key, int], int] = {}

    def _was(self, since: int, condition: Callable[[int], bool]) -> bool:
        self._witness.look()
        return any(condition(end) for end in range(since, self._witness.end + 1))

    def _epoch(self, broker_id: int, end: int) -> int | None:
        known = self._witness.broker(broker_id, end)
        return None if known is None else known.epoch

    def leads(self, key: Key, broker: Broker, epoch: int) -> None:
        """Check when a broker starts to lead: no other broker led in this epoch."""
        leader = self._leaders.setdefault((key, epoch), broker.id)
        assert leader == broker.id, f"{key[1]} of {key[0].hex()}: {leader} and {broker.id} lead in epoch {epoch}"
        self._witness.look()
        self._witness.leads(key, broker.id, epoch)

    # --- brokers

    def registration(self, since: int, broker: Broker, answer: cluster.BrokerRegistrationResponse) -> None:
        witness, mine = self._witness, broker.incarnation.hex()
        match answer.error_code:
            case Code.NONE:

                def registered(end: int) -> bool:
                    known = witness.broker(broker.id, end)
                    return known is not None and (known.incarnation, known.epoch) == (mine, answer.broker_epoch)

                assert self._was(since, registered), f"broker {broker.id} was not registered so: {answer}"
            case Code.DUPLICATE_BROKER_REGISTRATION:

                def another(end: int) -> bool:
                    known = witness.broker(broker.id, end)
                    return known is not None and known.incarnation != mine and not known.fenced

                assert self._was(since, another), f"no other process of broker {broker.id} was live"
            case code:
                assert code == Code.NOT_CONTROLLER, f"broker {broker.id}: {answer}"

    def heartbeat(
        self,
        since: int,
        broker: Broker,
        request: cluster.BrokerHeartbeatRequest,
        answer: cluster.BrokerHeartbeatResponse,
    ) -> None:
        witness, epoch = self._witness, request.broker_epoch
        match answer.error_code:
            case Code.NONE:

                def fits(end: int) -> bool:
                    known = witness.broker(broker.id, end)
                    return known is not None and known.epoch == epoch and known.fenced == answer.is_fenced

                assert self._was(since, fits), f"broker {broker.id}, epoch {epoch}: {answer}, {self._now(broker.id)}"
                known = witness.broker(broker.id, since)
                if answer.should_shut_down and not request.want_fence and known is not None and not known.fenced:
                    led = [key for key in witness.parts if self._leads_all_along(key, broker.id, since)]
                    assert not led, f"broker {broker.id} may shut down, but leads {led}"
            case Code.STALE_BROKER_EPOCH:
                assert self._was(since, lambda end: self._epoch(broker.id, end) not in (None, epoch)), (
                    f"broker {broker.id}: epoch {epoch} is not stale"
                )
            case Code.BROKER_ID_NOT_REGISTERED:
                assert self._was(since, lambda end: self._epoch(broker.id, end) is None), f"{broker.id} is registered"
            case code:
                assert code == Code.NOT_CONTROLLER, f"broker {broker.id}: {answer}"

    def _now(self, broker_id: int) -> str:
        return f"it is {self._witness.broker(broker_id)}"

    def _leads_all_along(self, key: Key, broker_id: int, since: int) -> bool:
        def led(end: int) -> bool:
            part = self._witness.part(key, end)
            return part is not None and part.leader == broker_id

        return not self._was(since, lambda end: not led(end))

    # --- partitions

    def _refused(self, since: int, me: int, epoch: int, code: int) -> None:
        """Check the error of a request that was rejected as a whole."""
        if code == Code.STALE_BROKER_EPOCH:
            assert self._was(since, lambda end: self._epoch(me, end) != epoch), f"{me}: epoch {epoch} is not stale"
        else:
            assert code == Code.NOT_CONTROLLER, f"broker {me}: error {code}"

    def alter_partition(
        self, since: int, request: cluster.AlterPartitionRequest, answer: cluster.AlterPartitionResponse
    ) -> None:
        me = request.broker_id
        if answer.error_code:
            self._refused(since, me, request.broker_epoch, answer.error_code)
            return
        requested = {(topic.topic_id, one.partition_index): one for topic in request.topics for one in topic.partitions}
        given = {(topic.topic_id, one.partition_index): one for topic in answer.topics for one in topic.partitions}
        assert requested.keys() == given.keys(), f"missing or extra partitions: {requested.keys() ^ given.keys()}"
        for key, report in requested.items():
            one = given[key]

            def fits(end: int, key: Key = key, report: Any = report, code: int = one.error_code) -> bool:
                right = self._code(key, me, report, end)
                is_mine = right == Code.UNKNOWN_TOPIC_ID or self._epoch(me, end) == request.broker_epoch
                return is_mine and code == right

            assert self._was(since, fits), f"{report} of {me} got {one}; {self._witness.part(key)}"
            if one.error_code == Code.NONE:
                self._check_taken(since, key, report, one)

    def _code(self, key: Key, me: int, report: cluster.AlterPartitionData, end: int) -> int:
        """Kafka's error code for the state after `end` events."""
        part = self._witness.part(key, end)
        if part is None:
            return int(Code.UNKNOWN_TOPIC_ID)
        if report.leader_epoch < part.leader_epoch:
            return int(Code.FENCED_LEADER_EPOCH)
        if me != part.leader:
            return int(Code.INVALID_REQUEST)
        if report.partition_epoch < part.partition_epoch:
            return int(Code.INVALID_UPDATE_VERSION)
        members = {each.broker_id: each.broker_epoch for each in report.new_isr_with_epochs}
        members = members or dict.fromkeys(report.new_isr, ANY)
        if me not in members or not members.keys() <= set(part.replicas):
            return int(Code.INVALID_REQUEST)
        for member, epoch in members.items():
            known = self._witness.broker(member, end)
            if known is None or not known.lives or epoch not in (ANY, known.epoch):
                return int(Code.INELIGIBLE_REPLICA)
        return int(Code.NEW_LEADER_ELECTED if self._leads_no_more(key, me, report) else Code.NONE)

    def _leads_no_more(self, key: Key, me: int, report: cluster.AlterPartitionData) -> bool:
        """True if the report completed a reassignment by which its sender lost leadership."""
        parts = [part for part in self._witness.parts[key].values if part is not None]
        return any(part.leader != me for part in parts if part.partition_epoch == report.partition_epoch + 1)

    def _check_taken(
        self, since: int, key: Key, report: cluster.AlterPartitionData, one: cluster.AlterPartitionResult
    ) -> None:
        def shown(end: int) -> bool:
            part = self._witness.part(key, end)
            return part is not None and (
                (part.leader, part.leader_epoch, part.partition_epoch, part.isr)
                == (one.leader_id, one.leader_epoch, one.partition_epoch, one.isr)
            )

        assert self._was(since, shown), f"{one} was never the state: {self._witness.part(key)}"

    def assigned(
        self, since: int, request: cluster.AssignReplicasToDirsRequest, answer: cluster.AssignReplicasToDirsResponse
    ) -> None:
        me = request.broker_id
        if answer.error_code:
            self._refused(since, me, request.broker_epoch, answer.error_code)
            return
        for directory in answer.directories:
            for topic in directory.topics:
                for one in topic.partitions:
                    key = (topic.topic_id, one.partition_index)

                    def lies_there(end: int, key: Key = key, place: bytes = directory.id) -> bool:
                        part, before = self._witness.part(key, end), self._witness.part(key, max(since, end - 1))
                        if part is None or before is None:
                            return False
                        # As in Kafka, the change may also complete a reassignment that removes the replica.
                        return part.directory_of(me) == place or (me in before.replicas and me not in part.replicas)

                    if one.error_code == Code.NONE:
                        assert self._was(since, lies_there), f"broker {me}: {key} is in another directory"
