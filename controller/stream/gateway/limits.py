"""Counts of topics in other partitions, for the limits of rules: a gateway adds them to the commands that it sends.

A worker knows only the topics of its own partitions. The gateway follows all partitions, and also counts its own
commands that are not decided yet. It no longer counts a command that timed out, although a worker may still decide
it. Then, and with several gateways, which do not know the undecided commands of each other, a limit can be exceeded.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from controller.machine.commands.commands import TopicCommand
from controller.machine.decision import Decision
from controller.machine.rules.judging import limited_groups
from controller.machine.state import Counts
from controller.stream.log.partition import PartitionState
from events.catalog import PartitionsAdded, Recorded, TopicCreated
from events.names import RequestId, TopicName


class UndecidedCounts:
    """The topics and partitions that undecided commands of this gateway may add, by partition and group of topics."""

    def __init__(self, partitions: Sequence[PartitionState]) -> None:
        self._partitions = partitions
        self._counts: dict[tuple[int, str], Counts] = {}
        self._sent: dict[tuple[RequestId, TopicName], tuple[int, list[str], Counts]] = {}
        for each in partitions:
            each.on_records = self._on_records

    def with_counts(self, command: TopicCommand, home: int) -> TopicCommand:
        """Returns the command with the counts of other partitions than `home` and of all undecided commands, if a limit
        concerns it."""
        groups = sorted(limited_groups(self._partitions[home].state, command))
        totals = [(group, self._elsewhere(group, home)) for group in groups]
        return replace(command, elsewhere=_stamps(totals)) if totals else command

    def sending(self, command: TopicCommand, expected: Decision, home: int) -> TopicCommand:
        """Returns the command to send: without the undecided commands of its own partition, which the worker decides
        before it. Counts the command until it is decided; `expected` is its likely decision."""
        if not command.elsewhere:
            return command
        totals = [(group, Counts(*total) - self._undecided(group, home)) for group, *total in command.elsewhere]
        if not command.validate_only:
            groups = [group for group, _ in totals]
            new = [event for event in expected.events if isinstance(event, TopicCreated | PartitionsAdded)]
            added = Counts(sum(isinstance(one, TopicCreated) for one in new), sum(len(one.partitions) for one in new))
            self._sent[command.request_id, command.topic] = home, groups, added
            self._add(home, groups, added)
        return replace(command, elsewhere=_stamps(totals))

    def decided(self, request_id: RequestId, topic: TopicName) -> None:
        """Count a command no more. Without effect for one that is not counted."""
        sent = self._sent.pop((request_id, topic), None)
        if sent is not None:
            home, groups, added = sent
            self._add(home, groups, Counts() - added)

    def _on_records(self, records: Sequence[Recorded]) -> None:
        if self._sent:
            for record in records:
                self.decided(record.cause.request_id, getattr(record.event, "topic", TopicName("")))

    def _undecided(self, group: str, number: int) -> Counts:
        return self._counts.get((number, group), Counts())

    def _elsewhere(self, group: str, home: int) -> Counts:
        others = (each.state.topics.counts(group) for number, each in enumerate(self._partitions) if number != home)
        undecided = (self._undecided(group, number) for number in range(len(self._partitions)))
        return sum((*others, *undecided), Counts())

    def _add(self, home: int, groups: Sequence[str], added: Counts) -> None:
        for key in ((home, group) for group in groups):
            total = self._counts.pop(key, Counts()) + added
            if total != Counts():
                self._counts[key] = total


def _stamps(totals: Iterable[tuple[str, Counts]]) -> tuple[tuple[str, int, int], ...]:
    return tuple((group, total.topics, total.partitions) for group, total in totals)
