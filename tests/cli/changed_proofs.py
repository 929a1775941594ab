"""Proofs that somebody changed, of which none may hold: each change in a function."""

from __future__ import annotations

from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from events.logs.tree_heads import Head, HeadSigner


def change_value(proof: dict[str, Any]) -> None:
    proof["events"][1]["value"] = proof["events"][0]["value"]


def change_offset(proof: dict[str, Any]) -> None:
    proof["events"][1]["offset"] += 1


def swap_places(proof: dict[str, Any]) -> None:
    first, second = proof["events"][:2]
    first["offset"], second["offset"] = second["offset"], first["offset"]


def change_path(proof: dict[str, Any]) -> None:
    proof["events"][0]["path"][3] = proof["events"][0]["path"][2]


def shorten_path(proof: dict[str, Any]) -> None:
    proof["events"][0]["path"].pop()


def lengthen_path(proof: dict[str, Any]) -> None:
    proof["events"][0]["path"] *= 2


def change_root(proof: dict[str, Any]) -> None:
    proof["head"]["root"] = "0" * 64


def change_size(proof: dict[str, Any]) -> None:
    proof["head"]["size"] += 1


def change_time(proof: dict[str, Any]) -> None:
    proof["head"]["at_ms"] += 1


def change_log(proof: dict[str, Any]) -> None:
    proof["head"]["log"] = "another"


def change_signature(proof: dict[str, Any]) -> None:
    proof["head"]["signature"] = "A" * 86 + "=="


def drop_signature(proof: dict[str, Any]) -> None:
    del proof["head"]["signature"]


def sign_by_another(proof: dict[str, Any]) -> None:
    head = msgspec.convert(proof["head"], Head, strict=False)
    another = HeadSigner(Ed25519PrivateKey.from_private_bytes(b"o" * 32))
    proof["head"] = msgspec.to_builtins(another.signed(head))


def no_bytes(proof: dict[str, Any]) -> None:
    del proof["events"][0]["value"]


def no_events(proof: dict[str, Any]) -> None:
    proof["events"] = []


def twice_the_same(proof: dict[str, Any]) -> None:
    proof["events"][1] = proof["events"][0]


def turn_around(proof: dict[str, Any]) -> None:
    proof["events"].reverse()


def another_format(proof: dict[str, Any]) -> None:
    proof["format"] = "topicwright proof 2"


def time_as_text(proof: dict[str, Any]) -> None:
    proof["head"]["at_ms"] = str(proof["head"]["at_ms"])


def path_of_names(proof: dict[str, Any]) -> None:
    proof["events"][0]["path"] = dict.fromkeys(proof["events"][0]["path"])


CHANGES = (
    change_value,
    change_offset,
    swap_places,
    change_path,
    shorten_path,
    lengthen_path,
    change_root,
    change_size,
    change_time,
    change_log,
    change_signature,
    drop_signature,
    sign_by_another,
    no_bytes,
    no_events,
    twice_the_same,
    turn_around,
    another_format,
    time_as_text,
    path_of_names,
)
