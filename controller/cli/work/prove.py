"""`topicwright prove`: the proof that something stands in the log, for who has a head of it or the public key.

Exit codes: 0 proved; 1 it is not there; 2 wrong usage, or no service reached.
"""

from __future__ import annotations

import argparse
import sys

import msgspec

from controller.cli.reads import common
from controller.cli.sources.http import Refusal, Source
from controller.cli.terminal.usage import complain
from controller.cli.work.verify import read_head
from events.logs.proofs import Proof, ProofFails
from projections.queries.proving import ProofRequest


def prove(options: argparse.Namespace, source: Source) -> int:
    """Print the proof; the exit code."""
    try:
        size = None if options.head is None else read_head(options.head).size
        proof = _proof(options, source, size)
    except ProofFails as error:
        return complain(str(error))
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(proof), indent=1) + b"\n")
    sys.stdout.flush()
    signed = "signed" if proof.head.signature else "not signed"
    print(
        f"{len(proof.events)} events of {proof.about}, by a head of {proof.head.size} that is {signed}", file=sys.stderr
    )
    if proof.next_offset is not None:
        print(f"there are more: --from {proof.next_offset}", file=sys.stderr)
    return common.DONE


def _proof(options: argparse.Namespace, source: Source, size: int | None) -> Proof:
    """The proof of whatever the subject is: an offset, else a topic, else a request. Raises Refusal, SourceError."""
    subject: str = options.subject

    def wanted(*, offset: int | None = None, topic: str | None = None, request_id: str | None = None) -> ProofRequest:
        return ProofRequest(
            offset=offset,
            topic=topic,
            request_id=request_id,
            start=options.start,
            limit=options.limit,
            partition=options.partition,
            size=size,
        )

    if subject.isascii() and subject.isdigit():
        return source.proof(wanted(offset=int(subject)))
    try:
        return source.proof(wanted(topic=subject))
    except Refusal as refusal:
        if refusal.status not in {403, 404}:
            raise
    return source.proof(wanted(request_id=subject))
