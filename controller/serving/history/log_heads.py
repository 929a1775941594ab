"""The tree of a log, made for a log from before that has none, and the heads of it that are signed every so often."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from controller.brokers.port import CommandSink, stamp
from controller.machine.commands.commands import RecordHead
from controller.settings.load import ServeSettings, SettingsError
from events.logs.heads import BadKey, HeadSigner
from events.logs.log import EventLog, LogError
from projections.queries.proving import head_of
from projections.queries.query import Query
from projections.store.tree import TreeBehind, build_some, kept_head

REST_S = 0.01
"""Between two slices of a tree that is made: the loop does other work at least half of the time."""
AGAIN_S = 1.0


def head_signer(settings: ServeSettings) -> HeadSigner | None:
    """What signs the heads of the log; None without a key. Raises SettingsError."""
    path = settings.log_signing_key_location
    if path is None:
        return None
    try:
        return HeadSigner.read(Path(path))
    except BadKey as error:
        raise SettingsError(f"setting log.signing.key.location={path} is not allowed: {error}") from None


async def build_tree(log: EventLog) -> None:
    """Make the tree of a log that has none over its older events, in slices on the loop that writes the log."""
    logger = structlog.get_logger("topicwright")
    begun = False
    while True:
        try:
            if not build_some(log):
                break
            if not begun:
                begun = True
                logger.info("making the tree of the log", events=log.next_offset, done=kept_head(log)[0])
        except LogError:  # who writes the log says so, and reads it anew
            await asyncio.sleep(AGAIN_S)
        await asyncio.sleep(REST_S)
    if begun:
        logger.info("the tree of the log is made", events=log.next_offset)


async def sign_heads(controller: CommandSink, part: Query, signer: HeadSigner, every_s: float) -> None:
    """Keep a signed head as an event every so often, where there are new events to sign for."""
    kept = 0
    while True:
        await asyncio.sleep(every_s)
        if part.log.durable_offset <= kept:
            continue
        try:
            head = signer.signed(head_of(part, controller.now_ms()))
        except (TreeBehind, LogError):
            continue
        controller.submit_internal(
            RecordHead(
                **stamp(controller, "head"),
                size=head.size,
                root=bytes.fromhex(head.root),
                signed_at_ms=head.at_ms,
                public_key=head.public_key,
                signature=head.signature,
            )
        )
        await controller.decided()
        kept = head.size + 1  # the event that keeps the head needs no other
