"""Tree heads and proofs over HTTP: they match the log, need permission to read its events, and contain no secrets."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec

from controller.machine.commands.access import DrawLoginSecret
from controller.machine.commands.commands import AlterUserScramCredentials, ScramChange
from controller.machine.state import ScramCredential
from controller.serving.archiving import sign_heads
from events.catalog import HeadSigned
from events.codec import decode_event
from events.logs.merkle import leaf_hash
from events.logs.tree_heads import Head, HeadSigner, Proof, check_paths, read_proof
from tests.events.logs.test_tree_heads import key_files
from tests.http.service import Service
from tests.store.test_tree import root_by_hand


def root_of(one: Service, size: int) -> bytes:
    return root_by_hand(one.log, size)


def head_in(body: dict[str, Any]) -> Head:
    return msgspec.json.decode(msgspec.json.encode(body["head"]), type=Head)


async def proof_of(one: Service, **which: Any) -> Proof:
    """Returns a proof, checked against its tree head."""
    proof = read_proof(msgspec.json.encode(await one.get("/v1/log/proof", **which)))
    check_paths(proof)
    return proof


async def test_the_tree_head_covers_the_durable_events(one: Service) -> None:
    for number in range(60):
        await one.create(f"t{number}")
    reply = await one.get("/v1/log/head")
    head = head_in(reply)
    assert (head.log, head.size) == (one.log.cluster_id, one.log.durable_offset)
    assert bytes.fromhex(head.root) == root_of(one, head.size)
    assert not head.signature


async def test_proofs_cover_every_event_of_a_topic_or_request(one: Service) -> None:
    await one.create("a")
    created = await one.create("pay.orders")
    await one.create("b")
    for which in ({"topic": "pay.orders"}, {"request": created["request_id"]}, {"offset": "3"}):
        proof = await proof_of(one, **which)
        events = [decode_event(event.offset, event.value) for event in proof.events]
        assert bytes.fromhex(proof.head.root) == root_of(one, proof.head.size)
        if "topic" in which:
            shown = await one.get("/v1/events?topic=pay.orders")
            assert [event.offset for event in events] == [each["offset"] for each in shown["events"]]
        elif "request" in which:
            assert {event.event.topic for event in events} == {"pay.orders"}  # type: ignore[union-attr]
    first = await one.get("/v1/log/proof", topic="pay.orders", limit=2)
    rest = await one.get("/v1/log/proof", topic="pay.orders", **{"from": first["next_offset"]})
    whole = await one.get("/v1/log/proof", topic="pay.orders")
    assert first["events"] + rest["events"] == whole["events"]
    older = await proof_of(one, offset=2, size=9)
    assert (older.head.size, bytes.fromhex(older.head.root)) == (9, root_of(one, 9))


async def test_log_leaves_are_events_with_secrets_hashed(one: Service) -> None:
    change = ScramChange("bob", 1, ScramCredential(4096, bytes(16), b"PLANTED" * 6, b"PLANTED" * 6))
    one.submit_internal(AlterUserScramCredentials, principal="User:a", client_id=None, changes=(change,))
    one.submit_internal(DrawLoginSecret, secret=b"PLANTED" * 5)
    await one.controller.decided()
    await one.create("t")
    hashes: list[bytes] = []
    place: int | None = 0
    hidden = 0
    while place is not None:
        answer = await one.client.get("/v1/log/leaves", params={"from": place, "limit": 3})
        assert base64.b64encode(b"PLANTEDPLANTEDP")[:-4] not in answer.content
        body = answer.json()
        for each in body["leaves"]:
            hidden += "leaf" in each
            value = base64.b64decode(each.get("value", ""))
            hashes.append(base64.b64decode(each["leaf"]) if "leaf" in each else leaf_hash(value))
            assert b"PLANTED" not in value
        place = body["next_offset"]
    assert hashes == [leaf_hash(value) for _, value in one.log.read()]
    assert hidden == 2
    secret = next(offset for offset, value in one.log.read() if b"PLANTED" in value)
    assert not (await proof_of(one, offset=secret)).events[0].value


async def test_tree_heads_are_signed_and_recorded_with_a_signing_key(one: Service, tmp_path: Path) -> None:
    signer = HeadSigner.read(key_files(tmp_path)[0])
    await one.create("t")
    async with one.another(sign=signer.signed) as (_, port):
        head = head_in((await one.client.get(f"http://127.0.0.1:{port}/v1/log/head")).json())
    assert head.is_signed_by(signer.public_key)
    keeping = asyncio.create_task(sign_heads(one.controller, one.query.parts[0], signer, 0.001))
    await one.until(lambda: len(kept(one)) == 1)
    await one.create("u")
    await one.until(lambda: len(kept(one)) >= 2)
    keeping.cancel()
    for offset, event in kept(one):
        assert event.size <= offset
        assert event.root == root_of(one, event.size)
    sizes = [event.size for _, event in kept(one)]
    assert sizes == sorted(set(sizes))
    assert one.log.durable_offset - sizes[-1] < 20, "the event with a tree head causes no further head"


def kept(one: Service) -> list[tuple[int, HeadSigned]]:
    events = ((offset, decode_event(offset, value).event) for offset, value in one.log.read())
    return [(offset, event) for offset, event in events if isinstance(event, HeadSigned)]


async def test_the_tree_head_is_a_metric(one: Service) -> None:
    await one.create("t")
    text = (await one.client.get("/metrics")).text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("topicwright_log_head"))
    size = int(float(lines["topicwright_log_head_size"]))
    assert float(lines["topicwright_log_head_root"]) == int.from_bytes(root_of(one, size)[:6], "big")
    assert float(lines["topicwright_log_head_timestamp_seconds"]) > 1.7e9
