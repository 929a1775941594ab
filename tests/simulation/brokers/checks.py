"""Checks of a world of Kafka brokers after all faults have ended."""

from controller.quorum.log.batches import embedded_events
from controller.quorum.log.image import MetadataImage
from controller.release import RELEASE
from events.catalog import Recorded
from projections.replay.redecide.redecide import difference
from tests.brokers.kraft.logs import differences
from tests.machine.rig import fold
from tests.replay.history import requests_in
from tests.simulation.brokers.world import World
from tests.simulation.checks import check_log, check_state


async def check_at_rest(world: World) -> None:
    """Check after all brokers have run without faults for a while."""
    witness, process = world.witness, world.controller
    assert process is not None, "no controller is running"
    assert process.leads, "the controller does not lead"
    controller = process.controller
    assert controller.failure is None, f"the controller failed: {controller.failure!r}"
    assert len(controller.replies) == 0, f"{len(controller.replies)} requests were never answered"
    witness.look()
    witness.check_kept()
    witness.check_settled()
    witness.check_led()
    for machine in world.machines.values():
        known = witness.broker(machine.id)
        assert known is not None, f"broker {machine.id} is running, but not registered"
        assert known.lives, f"broker {machine.id} is running, but not live: {known}"
    records = world.records()
    _check_log(records)
    folded = fold(records)
    check_state(folded, controller, world.disk.kept)
    waiting = {key for key, topic in folded.topics.items() if topic.pending_create is not None}  # type: ignore[attr-defined]
    assert not waiting, f"the creates of {waiting} were never answered in the log"
    _check_metadata(world, records, folded)


def _check_log(records: list[Recorded]) -> None:
    """Check the log as any other, and that the machine repeats each decision."""
    check_log(records)
    requests = requests_in(records)
    found = [one for request in requests if (one := difference(request, RELEASE)) is not None]
    assert not found, f"repeated decisions differ: {found[:3]}"


def _check_metadata(world: World, records: list[Recorded], folded: object) -> None:
    """Check that the metadata log embeds all events, and that its image and each broker's image equal the state."""
    image, values = MetadataImage(), list[bytes]()
    for batch in world.quorum_disk.kept:
        image.fold([batch])
        ours = None if batch.is_control else embedded_events(batch.records[0][1])
        if ours is not None and ours.values:
            assert ours.first == len(values), f"events from {ours.first} on are embedded after {len(values)}"
            values += ours.values
    assert values == world.witness.seen, "the metadata log embeds other events"
    found = differences(image, folded)  # type: ignore[arg-type]
    assert not found, "\n".join(found)
    for machine in world.machines.values():
        known = differences(machine.view.image, folded)  # type: ignore[arg-type]
        assert not known, f"broker {machine.id}: " + "\n".join(known)
