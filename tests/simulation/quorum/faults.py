"""Faults of a quorum, and an administrator's requests during them."""

from controller.quorum.raft.effects import Refused, Role
from controller.quorum.raft.voters import VoterSet
from tests.simulation.plan import FAULTS, Plan
from tests.simulation.quorum.disk import voters_at
from tests.simulation.quorum.world import Replica, World

VOTERS_MAX = 5


class Faults:
    """Injects the faults of one seed until `calm` is called."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self._is_calm = False
        self._number = 0
        self._pause_s = world.rng.choice((0.1, 0.3, 1.0))
        self._think_s = world.rng.choice((0.02, 0.1, 0.4))
        self._lost: set[int] = set()  # voters whose disk was replaced and that have not rejoined
        kinds = [self._kill, self._kill, self._pause, self._part, self._cut_one_way, self._slow, self._clean]
        kinds += [self._hand_over, self._lose, self._slow_disk, self._set_can_lead, self._fill]
        if not world.is_dynamic:
            kinds += [self._raise_kraft_version]
        else:
            kinds += [self._change_voters, self._lose_disk]
        self._kinds = world.rng.sample(kinds, world.rng.randint(2, len(kinds)))

    def begin(self) -> None:
        """Start faults, clients and the administrator."""
        self._again()
        self._append()
        self._administer()

    def calm(self) -> None:
        """End all faults; the disks keep their contents."""
        world = self._world
        self._is_calm = True
        world.cut, world.loss, world.doubling, world.latency_s = set(), 0.0, 0.0, 0.002
        for replica in world.replicas.values():
            replica.flush_s, replica.disk.is_full = 0.001, False
            if replica.paused is not None:
                replica.resume()
            if replica.quorum is None:
                replica.boot()
            replica.does(lambda quorum: quorum.set_can_lead(0.0, True))

    def _again(self) -> None:
        if not self._is_calm:
            world = self._world
            world.after(world.rng.expovariate(1 / self._pause_s), self._again)
            fault = world.rng.choice(self._kinds)
            if self._plan.happens(FAULTS):
                world.counts[FAULTS] += 1
                fault()

    def _append(self) -> None:
        world = self._world
        if self._is_calm:
            return
        world.after(world.rng.expovariate(1 / self._think_s), self._append)
        alive = [each for each in world.replicas.values() if each.quorum is not None and each.paused is None]
        leaders = [each for each in alive if each.quorum is not None and each.quorum.role is Role.LEADER]
        if leaders and not self._plan.happens("clients"):
            return
        for leader in leaders:
            self.append_to(leader)

    def append_to(self, leader: Replica) -> None:
        """Append a unique value for a client."""
        self._number += 1
        leader.append(self._number.to_bytes(4, "big"))

    # --- faults

    def _any(self) -> Replica:
        world = self._world
        if world.leader is not None and world.rng.random() < 0.5:
            return world.leader
        return world.rng.choice(list(world.replicas.values()))

    def _kill(self) -> None:
        world, replica = self._world, self._any()
        if replica.quorum is None:
            return
        world.counts["kill"] += 1
        replica.kill(power=world.rng.random() < 0.7)
        world.after(world.rng.expovariate(world.rng.choice((1.0, 20.0))), lambda: self._boot(replica))

    def _boot(self, replica: Replica) -> None:
        if replica.quorum is None:
            replica.boot()

    def _pause(self) -> None:
        world, replica = self._world, self._any()
        if replica.quorum is None or replica.paused is not None:
            return
        world.counts["pause"] += 1
        replica.paused, incarnation = [], replica.incarnation

        def wake() -> None:
            if replica.incarnation == incarnation and replica.paused is not None:
                replica.resume()

        world.after(world.rng.expovariate(0.5), wake)

    def _part(self) -> None:
        world = self._world
        ids = list(world.replicas)
        ours = set(world.rng.sample(ids, world.rng.randint(1, max(len(ids) // 2, 1))))
        self._cut({(a, b) for a in ids for b in ids if (a in ours) != (b in ours)})

    def _cut_one_way(self) -> None:
        world, ids = self._world, list(self._world.replicas)
        from_id = self._any().id
        self._cut({(from_id, each) for each in ids if world.rng.random() < 0.7})

    def _cut(self, pairs: set[tuple[int, int]]) -> None:
        world = self._world
        world.cut |= pairs
        world.counts["cut"] += 1
        world.after(world.rng.expovariate(0.5), lambda: world.cut.difference_update(pairs))

    def _slow(self) -> None:
        self._world.latency_s = self._world.rng.choice((0.001, 0.01, 0.1, 0.4))

    def _lose(self) -> None:
        self._world.loss = self._world.rng.choice((0.0, 0.02, 0.2))
        self._world.doubling = self._world.rng.choice((0.0, 0.2))

    def _slow_disk(self) -> None:
        self._any().flush_s = self._world.rng.choice((0.001, 0.05, 0.5))

    def _fill(self) -> None:
        """Fill a disk for a while: it rejects writes and may fail flushes."""
        world, disk = self._world, self._any().disk
        disk.is_full = True
        world.counts["disk full"] += 1

        def empty() -> None:
            disk.is_full = False

        world.after(world.rng.expovariate(1.0), empty)

    def _hand_over(self) -> None:
        leader = self._world.leader
        if leader is not None:
            at_most_s = self._world.rng.choice((0.0, 0.5))
            leader.does(lambda quorum: quorum.hand_over(leader.now(), at_most_s))

    def _set_can_lead(self) -> None:
        replica, can_lead = self._any(), self._world.rng.random() < 0.5
        if replica.quorum is not None and replica.paused is None:
            replica.does(lambda quorum: quorum.set_can_lead(replica.now(), can_lead))

    def _raise_kraft_version(self) -> None:
        leader = self._world.leader
        # A replica with old versions only (`World._version`) does not support kraft.version 1: the raise is rejected.
        if leader is not None and all(each.vote_version > 1 for each in self._world.replicas.values()):
            try:
                leader.does(lambda quorum: quorum.raise_kraft_version(leader.now()))
                self._world.counts["kraft.version raised"] += 1
            except Refused:
                self._world.counts["kraft.version refused"] += 1

    def _clean(self) -> None:
        """Take a snapshot of committed records, and delete the log before it."""
        world, replica = self._world, self._any()
        quorum, disk = replica.quorum, replica.disk
        ends = [each.last_offset + 1 for each in disk.kept if each.last_offset < replica.watermark]
        if quorum is None or not ends:
            return
        end = world.rng.choice(ends)
        epoch = disk.epoch_at(end - 1)
        assert epoch is not None
        disk.clean(
            end, epoch, *voters_at(quorum.history, end), kept=world.rng.choice((1, 2)), beyond=world.rng.choice((0, 5))
        )
        world.counts["clean"] += 1

    def _lose_disk(self) -> None:
        """Replace the disk of a voter: one at a time, and only if no voter set in any log needs it for a majority."""
        world, replica = self._world, self._any()
        sets = {each.quorum.voters.ids if each.quorum else () for each in world.replicas.values()}
        if self._lost or len(sets) != 1 or len(next(iter(sets))) < 3 or replica.id not in next(iter(sets)):
            return
        self._lost.add(replica.id)
        world.counts["disk lost"] += 1
        replica.kill(power=True)
        replica.disk = world.new_disk()
        replica.boot()

    # --- the administrator

    def _change_voters(self) -> None:
        world, leader = self._world, self._world.leader
        if self._lost or leader is None or leader.quorum is None:
            return
        voters = leader.quorum.voters
        outside = [each for each in world.replicas.values() if each.id not in voters.ids]
        if outside and len(voters) < VOTERS_MAX and world.rng.random() < 0.6:
            self._add(leader, world.rng.choice(outside))
        elif len(voters) > 1:
            self._remove(leader, voters, world.rng.choice(voters.ids))

    def _administer(self) -> None:
        """Remove voters whose disk was lost, and add them again with their new directory id."""
        world, leader = self._world, self._world.leader
        world.after(0.3, self._administer)
        if leader is None or leader.quorum is None:
            return
        for node_id in list(self._lost):
            replica, voters = world.replicas[node_id], leader.quorum.voters
            if node_id not in voters.ids:
                self._add(leader, replica)
            elif not voters.has(node_id, replica.disk.directory):
                self._remove(leader, voters, node_id)
            elif self._is_settled(voters):
                self._lost.discard(node_id)

    def _is_settled(self, voters: VoterSet) -> bool:
        return all(each.quorum is not None and each.quorum.voters == voters for each in self._world.replicas.values())

    @property
    def is_done(self) -> bool:
        """True if all voters with a replaced disk have rejoined."""
        return not self._lost

    def _add(self, leader: Replica, replica: Replica) -> None:
        leader.administer(replica.add_request(ack_when_committed=self._world.rng.random() < 0.5))

    def _remove(self, leader: Replica, voters: VoterSet, node_id: int) -> None:
        leader.administer(self._world.replicas[node_id].remove_request(voters.by_id[node_id].directory))
