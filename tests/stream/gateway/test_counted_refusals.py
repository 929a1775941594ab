"""Refusals that a gateway counts instead of sending the commands to the workers."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from controller.machine.commands.access import RecordRefusals
from controller.stream.log.codec import decode_command
from events.names import RequestId
from tests.simulation.virtual_time import on_virtual_time
from tests.stream.gateway.stage import Rig, codes
from tests.stream.log.records import create

LONG = "x" * 30_000


@on_virtual_time
async def test_refused_request_with_long_texts_is_counted_and_not_sent(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.begin()
    rig.request(create("u"))
    rig.work()
    refused = create("u", client_id=LONG), create("n" * 300), create("t", configs=(("a", "v" * 10**6),))
    for number, (command, code) in enumerate(zip(refused, (36, 17, 40), strict=True)):
        reply = await rig.request(replace(command, request_id=RequestId(f"long-{number}")))
        assert codes(reply.answers) == {command.topic: code}
    assert not [one for one in rig.put if one[0] == "commands"]
    short, accepted = create("u"), create("w", client_id=LONG)
    sent = []
    for number, command in enumerate((short, accepted)):
        sent.append(replace(command, request_id=RequestId(f"sent-{number}")))
        rig.request(sent[-1])
    assert [decode_command(one[3]) for one in rig.put if one[0] == "commands"] == sent
    rig.put.clear()
    rig.node.refusals.stop()
    counted = [decode_command(one[3]) for one in rig.put]
    events = [event for one in counted if isinstance(one, RecordRefusals) for event in one.refusals]
    assert [event.count for event in events] == [1, 1, 1]
    assert max(len(event.resource) for event in events) <= 256
    rig.close()
