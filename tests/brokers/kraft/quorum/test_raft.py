"""What the consensus does where nothing goes wrong but what a test does: the rules of KIP-595, 853, 996 and 1166.

The replicas, their disks and their network are the simulator's, in virtual time.
"""

from __future__ import annotations

from typing import Any

import pytest

from controller.brokers.kraft.quorum.core import Quorum
from controller.brokers.kraft.quorum.effects import CommittedLost, NotLeader, Refused, Reply, Role, Send
from controller.brokers.kraft.quorum.log import EpochEnd
from controller.kafka.messages import fetch as f
from controller.kafka.messages import vote as v
from controller.kafka.messages.add_raft_voter import AddRaftVoterRequest, Listener
from controller.kafka.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from controller.kafka.messages.describe_quorum import DescribeQuorumRequest
from controller.kafka.messages.end_quorum_epoch import EndQuorumEpochRequest
from controller.kafka.messages.fetch_snapshot import FetchSnapshotRequest
from controller.kafka.messages.remove_raft_voter import RemoveRaftVoterRequest
from controller.kafka.messages.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest
from controller.kafka.messages.update_raft_voter import Listener as Moved
from controller.machine.errors import ErrorCode
from tests.simulation.quorum.world import CLUSTER, ELECTION_TIMEOUT_S, FETCH_TIMEOUT_S, Replica, World

OTHER_DISK = b"another disk's.."


def booted(count: int = 3, priorities: dict[int, int] | None = None, is_dynamic: bool | None = None) -> World:
    """Replicas that have just started. Without priorities nobody claims the lead from another."""
    world = World(1, count, is_dynamic)
    world.is_encoded = True
    for replica in world.replicas.values():
        replica.rate, replica.vote_version = 1.0, 2
        replica.priority = 1 if priorities is None else priorities[replica.id]
        replica.boot()
        if priorities is None:
            quorum_of(replica).wish(replica.now(), wanted=False)
    return world


def settled(count: int = 3, priorities: dict[int, int] | None = None, is_dynamic: bool | None = None) -> World:
    """Replicas that have run for a while, without faults."""
    world = booted(count, priorities, is_dynamic)
    world.run_until(10.0)
    return world


def leader_of(world: World) -> Replica:
    assert world.leader is not None, "there is a leader"
    return world.leader


def quorum_of(replica: Replica) -> Quorum:
    assert replica.quorum is not None, "it is up"
    return replica.quorum


def others(world: World) -> list[Replica]:
    return [each for each in world.replicas.values() if each is not world.leader]


def answer(replica: Replica, request: Any) -> Any:
    """The response to a request that is answered at once."""
    quorum = quorum_of(replica)
    quorum.request(replica.now(), "test", request)
    effects = quorum.take_effects()
    mine = [each for each in effects if isinstance(each, Reply) and each.token == "test"]
    quorum._effects = [each for each in effects if each not in mine]
    replica.does(lambda quorum: None)
    return mine[0].response


def sent(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> list[Send]:
    """What it sends from now on."""
    found: list[Send] = []
    send = replica.world.send

    def noting(sender: Replica, effect: Send) -> None:
        if sender is replica:
            found.append(effect)
        send(sender, effect)

    monkeypatch.setattr(replica.world, "send", noting)
    return found


def vote_request(candidate: Replica, epoch: int, end: int, last_epoch: int, pre_vote: bool = False) -> v.VoteRequest:
    part = v.RequestPartitionData(
        replica_epoch=epoch,
        replica_id=candidate.id,
        replica_directory_id=candidate.disk.directory,
        last_offset_epoch=last_epoch,
        last_offset=end,
        pre_vote=pre_vote,
    )
    topic = v.RequestTopicData(topic_name="__cluster_metadata", partitions=(part,))
    return v.VoteRequest(cluster_id=CLUSTER, topics=(topic,))


# --- who leads


def test_one_voter_leads_when_start_returns() -> None:
    world = booted(1)
    replica = world.replicas[1]
    assert quorum_of(replica).role is Role.LEADER
    world.run_until(0.1)
    replica.append(b"x")
    world.run_until(0.2)
    assert (replica.watermark, world.witness.answered) == (replica.disk.end, 1)


@pytest.mark.parametrize("is_dynamic", [True, False])
def test_three_voters_find_a_leader_whom_all_follow(is_dynamic: bool) -> None:
    world = settled(is_dynamic=is_dynamic)
    leader = leader_of(world)
    for replica in others(world):
        assert quorum_of(replica).leader_id == leader.id
        assert (replica.disk.end, replica.watermark) == (leader.disk.end, leader.disk.end)
    assert quorum_of(leader).kraft_version == int(is_dynamic)


def test_a_leader_that_dies_is_followed_by_another_after_the_fetch_timeout() -> None:
    world = settled()
    dead = leader_of(world)
    dead.kill(power=True)
    world.run_until(world.now + FETCH_TIMEOUT_S + 3 * ELECTION_TIMEOUT_S)
    assert leader_of(world) is not dead


def test_a_leader_without_a_majority_resigns_after_one_and_a_half_fetch_timeouts() -> None:
    world = settled()
    leader = leader_of(world)
    for replica in others(world):
        replica.kill(power=True)
    world.run_until(world.now + 1.2 * FETCH_TIMEOUT_S)
    assert quorum_of(leader).role is Role.LEADER
    world.run_until(world.now + 0.4 * FETCH_TIMEOUT_S)
    assert quorum_of(leader).role is not Role.LEADER


def test_who_wants_to_lead_claims_the_lead_after_a_quiet_fetch() -> None:
    world = settled(priorities={1: 0, 2: 2, 3: 0})
    assert leader_of(world).id == 2
    world.replicas[2].kill(power=True)
    world.run_until(world.now + 6)
    assert leader_of(world).id != 2
    world.replicas[2].boot()
    world.run_until(world.now + 2)
    assert leader_of(world).id == 2
    assert quorum_of(world.replicas[2]).claims_lost == 0


def test_a_claim_that_is_lost_is_made_again_after_twice_as_long() -> None:
    world = settled()
    core = quorum_of(others(world)[0])
    core.wish(0.0, wanted=True)
    for number in range(9):
        core.claim_ended(100.0, None)
        pause_s = min(2.0**number, 60.0)
        assert not core.may_claim(100.0 + pause_s - 0.01)
        assert core.may_claim(100.0 + pause_s)
    assert core.claims_lost == 9


def test_nobody_claims_without_the_wish() -> None:
    world = settled(priorities={1: 0, 2: 0, 3: 0})
    epoch = quorum_of(leader_of(world)).epoch
    for replica in world.replicas.values():
        quorum_of(replica).wish(replica.now(), wanted=True)
    world.run_until(world.now + 20)
    assert quorum_of(leader_of(world)).epoch == epoch


def test_with_priority_0_everywhere_somebody_leads_nevertheless() -> None:
    world = settled(priorities={1: 0, 2: 0, 3: 0})
    dead = leader_of(world)
    dead.kill(power=True)
    world.run_until(world.now + 8)
    assert leader_of(world) is not dead


def test_who_may_not_lead_votes_and_never_stands() -> None:
    world = booted()
    for node_id in (1, 2):
        world.replicas[node_id].does(lambda quorum: quorum.veto(0.0, can_lead=False))
    world.run_until(10)
    assert leader_of(world).id == 3, "two of three veto, and elect the third"
    leader_of(world).kill(power=True)
    world.run_until(world.now + 20)
    assert world.leader is None


def test_a_veto_makes_a_leader_hand_over() -> None:
    world = settled()
    leader = leader_of(world)
    leader.does(lambda quorum: quorum.veto(leader.now(), can_lead=False))
    world.run_until(world.now + 2)
    assert leader_of(world) is not leader


def test_a_leader_that_hands_over_waits_for_what_it_took_and_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    leader, began = leader_of(world), world.now
    seen = sent(leader, monkeypatch)
    leader.append(b"taken")
    leader.does(lambda quorum: quorum.hand_over(leader.now(), 1.0))
    with pytest.raises(NotLeader):
        quorum_of(leader).append(leader.now(), 0, [(None, b"refused")])
    while world.leader in (None, leader):
        world.run_until(world.now + 0.01)
    assert world.now - began < 0.3, "in virtual time: no timeout has to pass"
    assert world.witness.answered == 1
    ends = [each.request for each in seen if isinstance(each.request, EndQuorumEpochRequest)]
    assert [len(each.topics[0].partitions[0].preferred_candidates) for each in ends] == [2, 2]


def test_followers_that_have_more_are_to_succeed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    leader, behind = leader_of(world), others(world)[0]
    behind.paused = []
    leader.append(b"x")
    world.run_until(world.now + 0.1)
    seen = sent(leader, monkeypatch)
    leader.does(lambda quorum: quorum.hand_over(leader.now(), 0.0))
    world.run_until(world.now + 0.01)
    ends = [each.request for each in seen if isinstance(each.request, EndQuorumEpochRequest)]
    assert ends[0].topics[0].partitions[0].preferred_successors[-1] == behind.id


def test_where_a_peer_knows_no_pre_vote_none_is_held() -> None:
    world = settled()
    replica = others(world)[0]
    replica.does(lambda quorum: quorum.stand(replica.now()))
    assert quorum_of(replica).role is Role.PROSPECTIVE
    replica.does(lambda quorum: quorum.peer_speaks(replica.now(), ("node", leader_of(world).id), 1))
    assert quorum_of(replica).role is Role.CANDIDATE


# --- votes


def test_a_vote_is_given_once_an_epoch_and_not_to_who_has_less() -> None:
    world = settled()
    a, b = others(world)
    disk = a.disk
    epoch, end, last = quorum_of(a).epoch + 5, disk.end, disk.last_epoch
    assert not answer(a, vote_request(b, epoch, end - 1, last)).topics[0].partitions[0].vote_granted
    assert answer(a, vote_request(b, epoch, end, last)).topics[0].partitions[0].vote_granted
    assert (disk.state.epoch, disk.state.voted_id) == (epoch, b.id), "durable before it is said"
    assert not answer(a, vote_request(leader_of(world), epoch, end + 9, last)).topics[0].partitions[0].vote_granted
    assert answer(a, vote_request(b, epoch, end, last)).topics[0].partitions[0].vote_granted, "it may not have heard"


def test_who_hears_its_leader_grants_no_pre_vote_and_remembers_none() -> None:
    world = settled()
    a, b = others(world)
    state = a.disk.state
    request = vote_request(b, quorum_of(a).epoch, a.disk.end, a.disk.last_epoch, pre_vote=True)
    assert not answer(a, request).topics[0].partitions[0].vote_granted
    following = quorum_of(a).following
    assert following is not None
    following.has_fetched = False
    assert answer(a, request).topics[0].partitions[0].vote_granted
    assert a.disk.state == state


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"replica_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"last_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_offset_epoch": 1000}, ErrorCode.INVALID_REQUEST),
        ({"replica_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": OTHER_DISK}, ErrorCode.INVALID_VOTER_KEY),
    ],
)
def test_a_vote_that_cannot_be_is_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    world = settled()
    fields = {"replica_epoch": 50, "replica_id": 2, "last_offset": 9, "last_offset_epoch": 1, **changes}
    topic = v.RequestTopicData(topic_name="__cluster_metadata", partitions=(v.RequestPartitionData(**fields),))
    response = answer(others(world)[0], v.VoteRequest(cluster_id=CLUSTER, topics=(topic,)))
    assert response.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize(
    "kind", [v.VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, f.FetchRequest, FetchSnapshotRequest]
)
def test_other_clusters_and_other_partitions_are_refused(kind: type[Any]) -> None:
    leader = leader_of(settled())
    assert answer(leader, kind(cluster_id="another")).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert answer(leader, kind(cluster_id=CLUSTER)).error_code == ErrorCode.INVALID_REQUEST


# --- fetches


def fetched(world: World, **changes: Any) -> f.PartitionData:
    """The leader's answer to a fetch that does not wait, by nobody."""
    leader = leader_of(world)
    fields = {"current_leader_epoch": quorum_of(leader).epoch, "fetch_offset": 0, "last_fetched_epoch": 0, **changes}
    topic = f.FetchTopic(partitions=(f.FetchPartition(**fields),))
    part: f.PartitionData = (
        answer(leader, f.FetchRequest(cluster_id=CLUSTER, topics=(topic,))).responses[0].partitions[0]
    )
    return part


def test_a_fetch_shows_records_watermark_and_leader() -> None:
    world = settled()
    part = fetched(world)
    assert part.records == leader_of(world).disk.read(0, 1 << 20)
    assert part.high_watermark == leader_of(world).watermark
    assert part.current_leader.leader_id == leader_of(world).id


def test_a_fetch_in_another_epoch_is_refused() -> None:
    world = settled()
    epoch = quorum_of(leader_of(world)).epoch
    assert fetched(world, current_leader_epoch=epoch - 1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert fetched(world, current_leader_epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_fetch_from_where_the_logs_part_is_shown_where() -> None:
    world = settled()
    disk = leader_of(world).disk
    part = fetched(world, fetch_offset=disk.end + 7, last_fetched_epoch=disk.last_epoch)
    shown = EpochEnd(part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
    assert shown == disk.end_of_epoch(disk.last_epoch)
    assert not part.records


def test_parked_fetches_are_answered_for_a_watermark_and_at_a_quarter_of_the_fetch_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = settled()
    leader, follower = leader_of(world), others(world)[0]
    seen = sent(follower, monkeypatch)
    world.run_until(world.now + 4 * FETCH_TIMEOUT_S)
    assert 14 <= len([each for each in seen if isinstance(each.request, f.FetchRequest)]) <= 17
    leader.append(b"x")
    world.run_until(world.now + 0.05)
    assert {each.watermark for each in world.replicas.values()} == {leader.disk.end}, "none waits for its timeout"


def test_a_follower_that_would_lose_what_is_committed_stops() -> None:
    world = settled()
    follower = others(world)[0]
    following, end = quorum_of(follower).following, follower.disk.end
    assert following is not None
    with pytest.raises(CommittedLost, match="committed"):
        following._truncate(f.EpochEndOffset(epoch=0, end_offset=0))
    assert follower.disk.end == end


# --- who votes


def add(replica: Replica, **changes: Any) -> AddRaftVoterRequest:
    fields = {
        "voter_id": replica.id,
        "voter_directory_id": replica.disk.directory,
        "listeners": (Listener(name="CONTROLLER", host="node", port=replica.id),),
        **changes,
    }
    return AddRaftVoterRequest(cluster_id=CLUSTER, timeout_ms=1000, **fields)


def remove(replica: Replica, directory: bytes | None = None) -> RemoveRaftVoterRequest:
    directory = directory or replica.disk.directory
    return RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=replica.id, voter_directory_id=directory)


def outcome(world: World, request: Any) -> int:
    """The error code that the leader answers in the end."""
    world.counts.clear()
    leader = leader_of(world)
    leader.does(lambda quorum: quorum.request(leader.now(), ("admin", world.steps), request))
    world.run_until(world.now + 3)
    (code,) = [int(each.rpartition(" ")[2]) for each in world.counts if "VoterResponse" in each]
    return code


def test_voters_go_and_come_while_others_lead() -> None:
    world = settled(is_dynamic=True)
    gone = others(world)[0]
    assert outcome(world, remove(gone)) == ErrorCode.NONE
    assert gone.id not in quorum_of(leader_of(world)).voters.ids
    leader_of(world).append(b"x")
    world.run_until(world.now + 1)
    assert gone.disk.end == leader_of(world).disk.end, "it observes"
    assert outcome(world, add(gone)) == ErrorCode.NONE
    assert quorum_of(gone).is_voter


def test_a_leader_that_takes_itself_out_leads_until_that_is_committed() -> None:
    world = settled(is_dynamic=True)
    leader = leader_of(world)
    assert outcome(world, remove(leader)) == ErrorCode.NONE
    assert leader_of(world) is not leader
    assert quorum_of(leader).role is Role.FOLLOWER


def test_who_alone_knows_that_it_is_taken_out_stands_once_more() -> None:
    """Else nobody can be elected: its log is the longest, and it votes for none."""
    world = settled(2, is_dynamic=True)
    leader, other = leader_of(world), others(world)[0]
    world.cut = {(other.id, leader.id), (leader.id, other.id)}
    leader.does(lambda quorum: quorum.request(leader.now(), ("admin", 1), remove(leader)))
    world.run_until(world.now + 5)
    assert (quorum_of(leader).voters.ids, quorum_of(other).voters.ids) == ((other.id,), (1, 2))
    world.cut = set()
    world.run_until(world.now + 10)
    assert leader_of(world) is other
    assert quorum_of(other).voters.ids == (other.id,)


def test_changes_of_voters_that_cannot_be_are_refused() -> None:
    world = settled(is_dynamic=True)
    voter = others(world)[0]
    assert outcome(world, add(voter)) == ErrorCode.DUPLICATE_VOTER
    assert outcome(world, add(voter, listeners=())) == ErrorCode.INVALID_REQUEST
    assert outcome(world, remove(voter, OTHER_DISK)) == ErrorCode.VOTER_NOT_FOUND
    assert answer(voter, remove(voter)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert outcome(world, add(voter, voter_id=77, voter_directory_id=OTHER_DISK)) == ErrorCode.REQUEST_TIMED_OUT
    static = settled(is_dynamic=False)
    assert outcome(static, remove(others(static)[0])) == ErrorCode.UNSUPPORTED_VERSION


def test_the_last_voter_stays() -> None:
    world = settled(1, is_dynamic=True)
    assert outcome(world, remove(leader_of(world))) == ErrorCode.INVALID_REQUEST


def test_voters_change_one_at_a_time() -> None:
    world = settled(5, is_dynamic=True)
    leader, (a, b, *_) = leader_of(world), others(world)
    leader.does(lambda quorum: quorum.request(leader.now(), ("admin", 1), remove(a)))
    assert answer(leader, remove(b)).error_code == ErrorCode.REQUEST_TIMED_OUT
    world.run_until(world.now + 1)
    assert outcome(world, remove(b)) == ErrorCode.NONE


def test_kraft_version_is_raised_when_all_have_shown_their_disks() -> None:
    world = settled(is_dynamic=False)
    leader = leader_of(world)
    leader.does(lambda quorum: quorum.raise_kraft_version(leader.now()))
    world.run_until(world.now + 1)
    for replica in world.replicas.values():
        quorum = quorum_of(replica)
        assert quorum.kraft_version == 1
        assert quorum.voters.has(replica.id, replica.disk.directory)
        assert not quorum.voters.has(replica.id, OTHER_DISK)
    with pytest.raises(Refused, match="newest"):
        quorum_of(leader).raise_kraft_version(leader.now())


def test_a_voter_says_where_it_listens_until_the_voters_have_it_so() -> None:
    world = settled(is_dynamic=True)
    replica, leader = others(world)[0], leader_of(world)
    request = UpdateRaftVoterRequest(
        cluster_id=CLUSTER,
        current_leader_epoch=quorum_of(leader).epoch,
        voter_id=replica.id,
        voter_directory_id=replica.disk.directory,
        listeners=(Moved(name="CONTROLLER", host="elsewhere", port=replica.id),),
        k_raft_version_feature=KRaftVersionFeature(max_supported_version=1),
    )
    leader.does(lambda quorum: quorum.request(leader.now(), ("admin", 1), request))
    assert quorum_of(leader).voters.by_id[replica.id].place_on("CONTROLLER") == ("elsewhere", replica.id)
    world.run_until(world.now + 10)
    for each in world.replicas.values():
        assert quorum_of(each).voters.by_id[replica.id].place_on("CONTROLLER") == ("node", replica.id)


def test_the_quorum_is_described_with_voters_observers_and_how_far_they_are() -> None:
    world = settled(is_dynamic=True)
    gone = others(world)[0]
    outcome(world, remove(gone))
    leader = leader_of(world)
    part = answer(leader, DescribeQuorumRequest()).topics[0].partitions[0]
    assert {each.replica_id for each in part.current_voters} == set(quorum_of(leader).voters.ids)
    assert [each.replica_id for each in part.observers] == [gone.id]
    assert {each.log_end_offset for each in part.current_voters} == {leader.disk.end}
    assert part.high_watermark == leader.watermark
    refused = answer(gone, DescribeQuorumRequest()).topics[0].partitions[0]
    assert (refused.error_code, refused.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader.id)
