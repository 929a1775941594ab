"""All clients of a soak; they are never killed."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.soak.judging import differing_logs, lost_commands, lost_topics, tried
from tests.soak.nodes import Node
from tests.soak.readers import Follower, Reader
from tests.soak.stage import Stage
from tests.soak.standstills import Standstills, evidence
from tests.stream.gateway.load import Changes
from tests.support.churn import QUIET, Churn, Reading

TOPIC: Final = "kept"
PARTITIONS: Final = 3
PAUSE_S: Final = 0.15


@dataclass(frozen=True, slots=True)
class Load:
    """A client that changes topics through brokers, and one through a gateway; a producer with acks=all and a consumer
    group; for each voter and gateway of Topicwright, a reader of its pages and a follower of its event stream."""

    stage: Stage
    changes: dict[str, Changes]
    """By the kind of node that decides the change."""
    churn: Churn
    reading: Reading
    readers: dict[str, Reader]
    followers: dict[str, Follower]
    standstills: Standstills

    def lost(self) -> list[str]:
        """End the load; returns all acknowledged changes and records that are lost or differ."""
        stage, wrong = self.stage, []
        for client in self.changes.values():
            client.end()
        for reader in self.readers.values():
            reader.end()
            wrong += reader.wrong
        addresses = {"voter": stage.cluster.bootstrap, "gateway": stage.gateway}
        for kind, client in self.changes.items():
            wrong += tried(client.name, lambda: lost_topics(client, addresses[kind]))  # noqa: B023
        wrong += tried("records", self._lost_records)
        wrong += tried("metadata logs", lambda: differing_logs(stage))
        if stage.gateway:
            wrong += tried("commands", lambda: lost_commands(stage, self.changes["gateway"]))
        for node in (each for each in stage.ours if each.name in self.followers):
            follower = self.followers[node.name]
            wrong += tried(follower.name, lambda: _unseen(follower, node))  # noqa: B023
        return wrong

    def _lost_records(self) -> list[str]:
        try:
            self.reading.catches_up(self.churn)
        except AssertionError as error:
            return [*self.standstills.wrong, f"{error}\n{evidence(self.stage, self.reading, self.churn)}"]
        finally:
            self.standstills.end()
        self.churn.__exit__(None, None, None)
        lost = self.churn.lost()
        found = [*self.standstills.wrong, *self.churn.failed]
        return [*found, *([f"records that were acknowledged are not there: {lost}"] if lost else [])]


def _unseen(follower: Follower, node: Node) -> list[str]:
    partition = "&partition=0" if node.kind == "gateway" else ""
    newest = msgspec.json.decode(node.get(f"/v1/events?order=newest&limit=1{partition}"))["events"]
    follower.end(newest[0]["offset"])
    return follower.wrong


@contextmanager
def load_on(stage: Stage, seed: int) -> Iterator[Load]:
    """Run all clients until the end of the block."""
    cluster, brokers = stage.cluster, len(stage.cluster.brokers)
    new = NewTopic(TOPIC, PARTITIONS, brokers, config={"min.insync.replicas": str(brokers // 2 + 1)})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.create_topics([new], request_timeout=30)[TOPIC].result(40)
    changes = {"voter": Changes("by-broker", cluster.bootstrap, min(2, brokers), PAUSE_S)}
    if stage.gateway:
        changes["gateway"] = Changes("by-gateway", stage.gateway, 2, PAUSE_S)
    read = [each for each in stage.ours if each.kind != "worker"]
    readers = {each.name: Reader(each, seed) for each in read}
    followers = {each.name: Follower(each) for each in read}
    with ExitStack() as ending:
        threads: tuple[Changes | Reader | Follower, ...] = (*changes.values(), *readers.values(), *followers.values())
        for thread in threads:
            thread.start()
            ending.callback(thread.over.set)
        reading = ending.enter_context(Reading(cluster.bootstrap, TOPIC))
        churn = ending.enter_context(Churn(cluster.bootstrap, TOPIC, PARTITIONS))
        standstills = Standstills(stage, reading, churn)
        standstills.start()
        ending.callback(standstills.end)
        churn.goes_on()
        reading.has_begun()
        yield Load(stage, changes, churn, reading, readers, followers, standstills)
