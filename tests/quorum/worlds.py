"""Quorums of the simulator's replicas, with its disks and network, in virtual time and without faults."""

from typing import Any

import pytest

from controller.kafka.messages import quorum as quorum_messages
from controller.kafka.messages.cluster import Listener
from controller.quorum.raft.consensus import Consensus
from controller.quorum.raft.effects import Reply, Send
from controller.quorum.raft.follower import Follower
from controller.quorum.raft.role import topics_of
from tests.simulation.quorum.world import CLUSTER, Replica, World

OTHER_DISK = b"another disk's.."


def booted(count: int = 3, priorities: dict[int, int] | None = None, is_dynamic: bool | None = None) -> World:
    """Replicas that have just started. Without priorities none requests a leadership transfer. A replica with priority
    0 or none appears as a Kafka voter."""
    world = World(1, count, is_dynamic)
    world.is_encoded = True
    for replica in world.replicas.values():
        replica.rate, replica.vote_version = 1.0, 2
        replica.priority = 1 if priorities is None else priorities[replica.id]
        replica.shown_priority = (priorities or {}).get(replica.id) or None
        replica.boot()
        if priorities is None:
            quorum_of(replica).wants_leadership = False
    return world


def settled(count: int = 3, priorities: dict[int, int] | None = None, is_dynamic: bool | None = None) -> World:
    """Replicas after ten seconds without faults."""
    world = booted(count, priorities, is_dynamic)
    world.run_until(10.0)
    return world


def leader_of(world: World) -> Replica:
    assert world.leader is not None, "there is no leader"
    return world.leader


def quorum_of(replica: Replica) -> Consensus:
    assert replica.quorum is not None, "the replica is down"
    return replica.quorum


def following(replica: Replica) -> Follower:
    role = quorum_of(replica)._role
    assert isinstance(role, Follower)
    return role


def others(world: World) -> list[Replica]:
    return [each for each in world.replicas.values() if each is not world.leader]


def answer(replica: Replica, request: Any) -> Any:
    """The response to a request that is answered immediately."""
    quorum = quorum_of(replica)
    quorum.request(replica.now(), "test", request)
    effects = quorum.take_effects()
    mine = [each for each in effects if isinstance(each, Reply) and each.token == "test"]
    quorum._effects = [each for each in effects if each not in mine]
    replica.does(lambda quorum: None)
    return mine[0].response


def sent(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> list[Send]:
    """A list that collects the requests the replica sends from now on."""
    found: list[Send] = []
    send = replica.world.send

    def noting(sender: Replica, effect: Send) -> None:
        if sender is replica:
            found.append(effect)
        send(sender, effect)

    monkeypatch.setattr(replica.world, "send", noting)
    return found


def vote_request(
    candidate: Replica, epoch: int, end: int, last_epoch: int, pre_vote: bool = False
) -> quorum_messages.VoteRequest:
    part = quorum_messages.VotePartition(
        replica_epoch=epoch,
        replica_id=candidate.id,
        replica_directory_id=candidate.disk.directory,
        last_offset_epoch=last_epoch,
        last_offset=end,
        pre_vote=pre_vote,
    )
    return quorum_messages.VoteRequest(cluster_id=CLUSTER, topics=topics_of(part))


def begin_request(leader_id: int, epoch: int) -> quorum_messages.BeginQuorumEpochRequest:
    part = quorum_messages.BeginEpochPartition(leader_id=leader_id, leader_epoch=epoch)
    place = Listener(name="CONTROLLER", host="node", port=leader_id)
    return quorum_messages.BeginQuorumEpochRequest(topics=topics_of(part), leader_endpoints=(place,))


def end_request(leader_id: int, epoch: int, *successors: int) -> quorum_messages.EndQuorumEpochRequest:
    part = quorum_messages.EndEpochPartition(leader_id=leader_id, leader_epoch=epoch, preferred_successors=successors)
    return quorum_messages.EndQuorumEpochRequest(topics=topics_of(part))
