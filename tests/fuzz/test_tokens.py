"""Mutated tokens (JWT) of a real key: only the right ones are accepted, and none takes long or raises another error.

Headers, claims, signatures, nesting, encodings and sizes change; many tokens are signed with the right key after the
change, as a careless provider would. An oracle that does not use the code under test says which are
right.
"""

import base64
import hashlib
import hmac
import json
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256

from controller.access.tokens import NAME_MAX, TokenRules
from controller.kafka.sasl import TOKEN_BYTES_MAX, AuthenticationFailed
from tests.access.test_tokens import AUDIENCE, HERE, ISSUER, OTHER_RSA, RSA, document, public, validator

SECONDS_MAX: Final = 0.1
"""The most processor time of one token."""
RULES: Final = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), clock_skew_s=0, sub_claim="sub", scope_claim="scope")
DEEP: Final = b"[" * 6000
ODD: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 1.5, 1e999, -1e999, float("nan"), 2**63, 10**400, "", "0", "1e9", " ", "\0", "none", "\ud800"),
    *([], [AUDIENCE], [[AUDIENCE]], {}, {"a": {}}, "x" * 300, ISSUER, "HS256", "rsa", "RS256", ["exp"]),
)
CLAIMS: Final = ("iss", "aud", "sub", "iat", "exp", "nbf", "scope", "jti")
HEADERS: Final = ("alg", "kid", "typ", "crit", "b64", "jwk", "x5u", "zip", "enc")


def part(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def sign(dice: Random, message: bytes) -> bytes:
    """A signature with the right key, with another, with the public key as a secret, a random one, or none."""
    pem = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    match dice.choice(("right", "right", "right", "other", "secret", "random", "none")):
        case "right":
            return jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(message, RSA)
        case "other":
            return jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(message, OTHER_RSA)
        case "secret":
            return hmac.digest(pem, message, hashlib.sha256)
        case "random":
            return dice.randbytes(dice.choice((1, 255, 256, 257)))
        case _:
            return b""


def mutated(dice: Random, now: int) -> bytes:
    header: dict[str, Any] = {"alg": "RS256", "typ": "JWT", "kid": "rsa"}
    claims: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 3600}
    for names, where in ((HEADERS, header), (CLAIMS, claims)):
        if dice.random() < 0.4:
            name = dice.choice(names)
            if dice.random() < 0.3:
                where.pop(name, None)
            else:
                where[name] = dice.choice(ODD)
    texts: list[bytes] = [json.dumps(each).encode() for each in (header, claims)]
    if dice.random() < 0.2:
        place, key = dice.randrange(2), dice.choice((b"exp", b"sub", b"alg", b"x"))
        odd = dice.choice((DEEP, b'{"a":' * 3000, b"9" * 5000, b"1e99999", b"1" + b"0" * 4000 + b".5", b'"\\ud800"'))
        texts[place] = texts[place][:-1] + b',"' + key + b'":' + odd + b"}"
    if dice.random() < 0.1:
        texts[dice.randrange(2)] = dice.choice(
            (b"", b"null", b"[]", DEEP, b"\xff\xfe", b'{"alg":"none"}', dice.randbytes(30))
        )
    message = b".".join(map(part, texts))
    token = message + b"." + part(sign(dice, message))
    if dice.random() < 0.2:
        place = dice.randrange(len(token))
        token = (
            token[:place]
            + dice.choice((b"", b".", b"=", b"\x00", b"+", b"%", b"A" * TOKEN_BYTES_MAX))
            + token[place + 1 :]
        )
    return token


def is_right(token: bytes, now: int) -> bool:
    """True if a careful reader may accept the token: three parts of strict base64, the right signature, and claims of
    the right types and values."""
    try:
        head, payload, signature = token.split(b".")
        decoded = [
            base64.b64decode(each + b"=" * (-len(each) % 4), b"-_", validate=True)
            for each in (head, payload, signature)
        ]
        RSA.public_key().verify(decoded[2], head + b"." + payload, PKCS1v15(), SHA256())
        header, claims = json.loads(decoded[0]), json.loads(decoded[1])
        of_aud = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        return (
            header["alg"] == "RS256"
            and header.get("kid") in (None, "rsa")
            and claims["iss"] == ISSUER
            and AUDIENCE in of_aud
            and all(isinstance(each, str) for each in of_aud)
            and isinstance(claims["sub"], str)
            and 1 <= len(claims["sub"].strip()) <= NAME_MAX
            and int(claims["exp"]) > now
            and float(claims["iat"]) < now + 60
            and int(claims.get("nbf", 0)) <= now + 60
        )
    except Exception:
        return False


@pytest.mark.parametrize("seed", range(4))
async def test_only_right_tokens_are_accepted(tmp_path: Path, seed: int) -> None:
    dice, file = Random(seed), tmp_path / "jwks.json"
    file.write_bytes(document(public(RSA, "rsa")))
    ended: Counter[str] = Counter()
    async with validator(file.as_uri(), RULES, backoff_max_s=0.01) as tokens:
        for _ in range(1500):
            now = int(time.time())
            token = mutated(dice, now)
            began = time.process_time()
            try:
                found = await tokens.bearer(token.decode("latin-1"), HERE)
            except AuthenticationFailed as error:
                ended[str(error)[:30]] += 1
            else:
                assert is_right(token, now), token
                ended["accepted"] += 1
                assert found.user == json.loads(base64.urlsafe_b64decode(token.split(b".")[1] + b"=="))["sub"].strip()
            assert time.process_time() - began < SECONDS_MAX, token
    assert ended["accepted"] > 100, ended
    assert len(ended) > 10, ended
