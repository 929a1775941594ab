"""Checks a proof that `topicwright prove` wrote, with Python's standard library alone.

    python verify_proof.py proof.json --key public.pem     its head is signed by the holder of this key (Ed25519)
    python verify_proof.py proof.json --head kept.json     its head is one that you kept: a reply of GET /v1/log/head

Prints each event as it stands in the log, and ends with 0; or says what is wrong, and ends with 1. What is checked:
each event's bytes lead to the root of the head by its path (RFC 9162, 2.1.3.2), and the head is one to be trusted
(RFC 8032, 5.1.7). Events are MessagePack arrays: a version, a time in ms, the command that led to the event with its
request, and the event's type with its fields. Of an event that holds a secret there is only the hash, of which
nobody sees what it is of.
"""

import argparse
import base64
import json
import struct
import sys
from hashlib import sha256, sha512

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
FORMAT = "topicwright proof 1"
PUBLIC_KEY = bytes.fromhex("302a300506032b6570032100")  # what stands before its 32 bytes (RFC 8410)


def need(holds, what):
    if not holds:
        raise ValueError(what)


def add(one, other):
    """Points of the curve, in affine coordinates: slow, and short."""
    (x1, y1), (x2, y2) = one, other
    k = D * x1 * x2 * y1 * y2
    return (x1 * y2 + x2 * y1) * pow(1 + k, P - 2, P) % P, (y1 * y2 + x1 * x2) * pow(1 - k, P - 2, P) % P


def times(scalar, point):
    product = (0, 1)
    while scalar:
        if scalar & 1:
            product = add(product, point)
        point, scalar = add(point, point), scalar >> 1
    return product


def point_of(data):
    number = int.from_bytes(data, "little")
    y, sign = number & ((1 << 255) - 1), number >> 255
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    need(y < P and (x * x - square) % P == 0 and (x or not sign), "the signature is none")
    return (x if x & 1 == sign else P - x), y


def check_signature(pem, text, signature):
    der = base64.b64decode("".join(line for line in pem.splitlines() if not line.startswith("-")))
    need(der[:12] == PUBLIC_KEY and len(der) == 44, "--key holds no Ed25519 public key in PEM")
    scalar = int.from_bytes(signature[32:], "little")
    need(len(signature) == 64 and scalar < ORDER, "the head is not signed")
    hashed = int.from_bytes(sha512(signature[:32] + der[12:] + text).digest(), "little") % ORDER
    base = point_of((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
    other = add(point_of(signature[:32]), times(hashed, point_of(der[12:])))
    need(times(scalar, base) == other, "the head is not signed by that key")


def root_from(leaf, offset, size, path):
    need(0 <= offset < size, f"event {offset} is not among the {size} of the head")
    index, last, root = offset, size - 1, leaf
    for text in path:
        beside = base64.b64decode(text, validate=True)
        need(last and len(beside) == 32, f"the path of event {offset} is none")
        if index & 1 or index == last:
            root = sha256(b"\1" + beside + root).digest()
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            root = sha256(b"\1" + root + beside).digest()
        index, last = index >> 1, last >> 1
    need(last == 0, f"the path of event {offset} is too short")
    return root.hex()


def unpacked(data, at):
    """The value of MessagePack at a place, as far as events use it, and the place after it."""
    kind, at = data[at], at + 1
    if kind < 0x80 or kind >= 0xE0:
        return (kind if kind < 0x80 else kind - 256), at
    if kind in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[kind], at
    if 0xCA <= kind <= 0xD3:
        form = ">" + "fdBHIQbhiq"[kind - 0xCA]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    width = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4}.get(kind, 0)
    need(width or 0x90 <= kind < 0xC0, "an event holds what no event does")
    length = int.from_bytes(data[at : at + width], "big") if width else kind & (15 if kind < 0xA0 else 31)
    at += width
    if kind < 0xA0 or kind >= 0xDC:
        items = []
        for _ in range(length):
            item, at = unpacked(data, at)
            items.append(item)
        return items, at
    piece = data[at : at + length]
    return (piece.hex() if 0xC4 <= kind <= 0xC6 else piece.decode()), at + length


def check(proof, pem, kept):
    head, events, last = proof["head"], proof["events"], -1
    need(proof.get("format", FORMAT) == FORMAT and type(events) is list and events, "it is no proof")
    need(type(head["size"]) is type(head["at_ms"]) is int, "its head is none")
    words = ("topicwright log head 1", *(str(head[name]) for name in ("log", "size", "root", "at_ms")))
    if pem is not None:
        text = "".join(word + "\n" for word in words).encode()
        check_signature(pem, text, base64.b64decode(head.get("signature", ""), validate=True))
    if kept is not None:
        kept = kept.get("head", kept)
        need(all(kept[name] == head[name] for name in ("log", "size", "root")), "the head is not the saved one")
    for event in events:
        value, offset = base64.b64decode(event.get("value", ""), validate=True), event["offset"]
        leaf = sha256(b"\0" + value).digest() if value else base64.b64decode(event["leaf"], validate=True)
        need(type(offset) is int and offset > last and type(event["path"]) is list, f"event {offset} is out of order")
        root, last = root_from(leaf, offset, head["size"], event["path"]), offset
        need(root == head["root"], f"event {offset} is not what was there")
    for event in events:
        value = base64.b64decode(event.get("value", ""))
        print(event["offset"], json.dumps(unpacked(value, 0)[0]) if value else "only its hash is shown", sep=": ")
    print(f"valid: {len(events)} events of log {ascii(head['log'])[1:-1]}, which had {head['size']}")


def main():
    parser = argparse.ArgumentParser(description="Checks a proof of Topicwright.")
    parser.add_argument("proof", type=argparse.FileType())
    trusted = parser.add_mutually_exclusive_group(required=True)
    trusted.add_argument("--key", type=argparse.FileType(), help="the public key of the service, in PEM")
    trusted.add_argument("--head", type=argparse.FileType(), help="a head that was kept, in JSON")
    options = parser.parse_args()
    try:
        kept = json.load(options.head) if options.head else None
        check(json.loads(options.proof.read(1 << 26)), options.key and options.key.read(10_000), kept)
    except Exception as error:
        sys.exit(f"does not hold: {error!a}")  # escapes in place of characters that a terminal acts on


if __name__ == "__main__":
    main()
