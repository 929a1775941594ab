"""Records durable events independently of the controller.

An answer or a view may depend only on events that were durable when it was sent. Durable events must never change.
"""

from events.catalog import (
    ApprovalDecided,
    ApprovalRequested,
    CreateAnswered,
    Event,
    RulesApplied,
    TopicCreated,
    TopicDeleted,
    TopicReady,
)
from events.codec import decode_event
from tests.support.memory_log import InMemoryLog


class Witness:
    """Reads one log up to its durable offset."""

    def __init__(self, log: InMemoryLog) -> None:
        self._log = log
        self.seen: list[bytes] = []
        self.created: dict[bytes, str] = {}
        """Topic id → name, also of deleted topics."""
        self.alive: dict[str, bytes] = {}
        self.deleted: set[bytes] = set()
        self.ready: set[bytes] = set()
        self.answered: set[tuple[bytes, int]] = set()
        """(topic id, error code) of each answered create that created a topic."""
        self._ids: dict[tuple[str, str], bytes] = {}
        self.decided: dict[tuple[str, str], str] = {}
        """The outcome of each request that was held, by its id and topic."""
        self._held: dict[tuple[str, str], bytes | None] = {}
        """The topic of each held request; None for a creation."""
        self._deleted: dict[str, bytes] = {}
        """The last deleted topic of each name."""
        self.rules = 0
        """The newest version of the rules."""

    def look(self) -> None:
        """Read the events that have become durable since the last call."""
        for offset, value in self._log.read(len(self.seen), self._log.durable_offset):
            self.seen.append(value)
            self.take(decode_event(offset, value).event)

    def take(self, event: Event) -> None:
        match event:
            case TopicCreated():
                self.created[event.topic_id] = event.topic
                self.alive[event.topic] = event.topic_id
                self._ids[event.request_id, event.topic] = event.topic_id
            case TopicDeleted():
                del self.alive[event.topic]
                self.deleted.add(event.topic_id)
                self._deleted[event.topic] = event.topic_id
            case TopicReady():
                self.ready.add(self.alive[event.topic])
            case CreateAnswered() if (event.request_id, event.topic) in self._ids:
                self.answered.add((self._ids[event.request_id, event.topic], event.error_code))
            case RulesApplied():
                self.rules = max(self.rules, event.number)
            case ApprovalRequested():
                self._held[event.request_id, event.name] = self.alive.get(event.name)
            case ApprovalDecided():
                held = event.request_id, event.name
                topics = self._held[held], self.alive.get(event.name), self._deleted.get(event.name)
                is_of_topic = event.outcome == "approved" and topics[0] is not None
                assert not is_of_topic or topics[0] in topics[1:], f"{held} was done to a later topic"
                assert held not in self.decided, f"{held} was {self.decided[held]}, and is {event.outcome}"
                self.decided[held] = event.outcome
            case _:
                pass

    def check_created(self, name: str, topic_id: bytes) -> None:
        """Check after a client got NONE for a create."""
        self.look()
        assert self.created.get(topic_id) == name, f"{name} was answered NONE, but its creation is not durable"
        assert topic_id in self.ready, f"{name} was answered NONE, but its TopicReady is not durable"
        assert (topic_id, 0) in self.answered, f"{name} was answered NONE, but the answer is not in the log"

    def check_deleted(self, name: str, topic_id: bytes) -> None:
        """Check after a client got NONE for a delete."""
        self.look()
        assert topic_id in self.deleted, f"the deletion of {name} was answered NONE, but it is not durable"

    def check_rules(self, number: int) -> None:
        """Check after a client got NONE for new rules; `number` is their version."""
        self.look()
        assert self.rules >= number, f"version {number} of the rules was answered, but it is not durable"

    def check_decided(self, held: ApprovalRequested, outcome: str) -> None:
        """Check after a client got NONE for an approval or a denial."""
        self.look()
        found = self.decided.get((held.request_id, held.name))
        assert found == outcome, f"{held.request_id} was answered {outcome}, but it is {found}"

    def check_shown(self, name: str, topic_id: bytes) -> None:
        """Check after a response to a client listed a topic."""
        self.look()
        assert self.created.get(topic_id) == name, f"a response lists {name}, but its creation is not durable"

    def check_kept(self) -> None:
        """Check that the log still has every event that was durable before."""
        kept = [value for _, value in self._log.read(0, len(self.seen))]
        assert kept == self.seen, f"durable events changed, the first at offset {_first_difference(kept, self.seen)}"


def _first_difference(kept: list[bytes], seen: list[bytes]) -> int:
    return next((at for at, (one, other) in enumerate(zip(kept, seen, strict=False)) if one != other), len(kept))
