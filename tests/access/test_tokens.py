"""Tokens of an identity provider: valid ones, forged ones, random ones; and a provider that changes or fails."""

import asyncio
import base64
import json
import math
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from structlog.testing import capture_logs

from controller.access import tokens as tokens_module
from controller.access.tokens import BYTES_MAX, KEYS_MAX, NAME_MAX, Jwks, JwksError, TokenRules, Tokens, parsed
from controller.kafka.sasl import TOKEN_BYTES_MAX, AuthenticationFailed, check_bearer
from tests.kafka.sasl_users import MemoryUsers
from tests.kafka.server.listener import until

ISSUER, AUDIENCE, HERE = "https://idp.example", "topicwright", "10.0.0.1"
RSA, OTHER_RSA = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
SHORT_RSA = rsa.generate_private_key(public_exponent=65537, key_size=1024)
EC = ec.generate_private_key(ec.SECP256R1())
RULES: Final = TokenRules(
    issuer=ISSUER,
    audiences=(AUDIENCE, "other"),
    clock_skew_s=30,
    sub_claim="sub",
    scope_claim="scope",
    roles={"a": "viewer", "a b": "admin"},
)


def public(key: Any, kid: str, **more: str) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": kid, **more}


def signed(key: Any = RSA, alg: str = "RS256", kid: str | None = "rsa", **claims: Any) -> str:
    """A token that is valid but for the given key and claims; a claim that is None is left out."""
    now = int(time.time())
    all_claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 3600, **claims}
    payload = {name: value for name, value in all_claims.items() if value is not None}
    return jwt.encode(payload, key, alg, {} if kid is None else {"kid": kid})


def raw(header: object, payload: object = b"{}", signature: bytes = b"") -> str:
    parts = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in (header, payload)]
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in (*parts, signature))


def document(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


ALL: Final = document(public(RSA, "rsa"), public(EC, "ec", use="sig"), public(SHORT_RSA, "short"))


@asynccontextmanager
async def validator(url: str, rules: TokenRules = RULES, **times: float) -> AsyncIterator[Tokens]:
    keys = Jwks(url, **{"refresh_s": 3600, "backoff_s": 0.01, "backoff_max_s": 0.05, **times})
    tokens = Tokens(rules, keys, time.time)
    keys.start()
    try:
        yield tokens
    finally:
        tokens.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_bytes(ALL)
    return path


@pytest.fixture
async def tokens(file: Path) -> AsyncIterator[Tokens]:
    async with validator(file.as_uri()) as found:
        yield found


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


async def why(tokens: Tokens, token: str) -> str:
    with pytest.raises(AuthenticationFailed) as failed:
        await tokens.bearer(token, HERE)
    return failed.value.why


@pytest.mark.parametrize(
    "token",
    [
        signed(),
        signed(kid=None),
        signed(alg="PS512"),
        signed(EC, "ES256", "ec"),
        signed(aud=["x", "other"]),
        signed(exp=10**300),
    ],
)
async def test_a_valid_token_names_its_user(tokens: Tokens, token: str) -> None:
    for _ in range(2):  # the second time from the cache
        found = await tokens.bearer(token, HERE)
        assert found.user == "alice"
        assert found.roles == frozenset()


async def test_clocks_may_differ_a_little(tokens: Tokens) -> None:
    now = int(time.time())
    for token in (signed(exp=now - 10, iat=now - 100), signed(iat=now + 10)):
        assert (await tokens.bearer(token, HERE)).user == "alice"


@pytest.mark.parametrize(
    ("scope", "roles"), [("a b", {"viewer"}), (["a b", "c"], {"admin"}), ("", set()), (None, set())]
)
async def test_scopes_in_a_text_or_a_list_give_roles(tokens: Tokens, scope: object, roles: set[str]) -> None:
    assert (await tokens.bearer(signed(scope=scope), HERE)).roles == roles


PEM: Final = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
NO_KEY: Final = "no key of the identity provider has the token's key id and algorithm"
NO_HEADER: Final = "a token that is not a JWT"
PAST: Final = int(time.time()) - 1000


def hmac_with_public_key() -> str:
    """Key confusion: signed with HS256, and the public key as the secret."""
    import hashlib
    import hmac

    unsigned = raw({"alg": "HS256", "kid": "rsa"}, {"sub": "root"}).rpartition(".")[0]
    mac = hmac.digest(PEM, unsigned.encode(), hashlib.sha256().name)
    return f"{unsigned}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (raw({"alg": "none"}, {"sub": "root"}), NO_KEY),
        (raw({"alg": "none", "kid": "rsa"}, {"sub": "root"}), NO_KEY),
        (hmac_with_public_key(), NO_KEY),
        (signed(OTHER_RSA), "invalid token: Signature verification failed"),
        (signed(EC, "ES256", "rsa"), NO_KEY),
        (signed(kid="unknown"), NO_KEY),
        (raw({"alg": "RS256", "kid": "rsa", "jwk": public(OTHER_RSA, "rsa")}), "invalid token: Signature"),
        (raw({"alg": "RS256", "kid": "rsa", "crit": ["exp"]}, {}, b"x"), "invalid token: Unsupported critical"),
        (signed()[:-4] + "AAAA", "invalid token: Signature verification failed"),
        (signed(exp=PAST), "invalid token: Signature has expired"),
        (signed(exp=None), 'invalid token: Token is missing the "exp" claim'),
        (signed(exp="soon"), "invalid token: Expiration Time claim (exp) must be an integer."),
        (signed(iat=None), 'invalid token: Token is missing the "iat" claim'),
        (signed(iat=int(time.time()) + 100_000), "invalid token: The token is not yet valid (iat)"),
        (signed(nbf=int(time.time()) + 100_000), "invalid token: The token is not yet valid (nbf)"),
        (signed(iss="https://evil.example"), "invalid token: Invalid issuer"),
        (signed(iss=None), 'invalid token: Token is missing the "iss" claim'),
        (signed(aud="billing"), "invalid token: Audience doesn't match"),
        (signed(aud=None), 'invalid token: Token is missing the "aud" claim'),
        (signed(sub=None), 'invalid token: Token is missing the "sub" claim'),
        (signed(sub="alice\ud800"), f"invalid token: sub must be 1 to {NAME_MAX} printable characters"),
        (signed(sub="alice\u00a0"), f"invalid token: sub must be 1 to {NAME_MAX} printable characters"),
        (signed(sub=" "), f"invalid token: sub must be 1 to {NAME_MAX} printable characters"),
        (signed(sub="x" * (NAME_MAX + 1)), f"invalid token: sub must be 1 to {NAME_MAX} printable characters"),
        (signed(scope=7), "invalid token: scope must be a text or a list of texts"),
        (signed(x="y" * TOKEN_BYTES_MAX), "a token of "),
        (raw(b"[" * 5000), NO_HEADER),
        (raw(b'{"alg":' * 1500), NO_HEADER),
        (raw([]), NO_HEADER),
        (raw({"alg": 5}), NO_HEADER),
        (raw({"alg": "RS256", "kid": ["rsa"]}), NO_HEADER),
        ("", NO_HEADER),
        ("....", NO_HEADER),
        ("ü.ü.ü", NO_HEADER),
    ],
)
async def test_a_forged_token_is_refused(tokens: Tokens, token: str, reason: str) -> None:
    assert (await why(tokens, token)).startswith(reason)


async def test_a_short_rsa_key_is_refused(tokens: Tokens) -> None:
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        token = signed(SHORT_RSA, kid="short")
    assert "2048" in await why(tokens, token)


async def test_a_signed_payload_that_is_nested_or_huge_is_refused(tokens: Tokens) -> None:
    for payload in (b"[" * 8000, b"{}", b'{"exp":1e999,"iat":1,"sub":"a"}', b'{"exp":' + b"9" * 6000 + b"}", b"\xff"):
        assert (await why(tokens, jwt.api_jws.encode(payload, RSA, "RS256", {"kid": "rsa"}))).startswith(
            "invalid token"
        )


async def test_random_changes_of_tokens_are_refused(tokens: Tokens) -> None:
    """A fuzzer: bytes of the message that a client sends are replaced, removed and repeated."""
    users = MemoryUsers({})
    users.bearer = tokens.bearer  # type: ignore[method-assign]
    chance, message = random.Random(7), f"n,,\x01auth=Bearer {signed()}\x01team=a\x01\x01".encode()
    assert (await check_bearer(users, HERE, message)).user == "alice"
    accepted = 0
    for _ in range(3000):
        changed = bytearray(message)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(changed))
            changed[place : place + chance.choice((0, 1, 1, 8))] = chance.choice(
                (b"", bytes([chance.randrange(256)]), b"\x01", b".", b"=", changed[place : place + 40])
            )
        try:
            step = await check_bearer(users, HERE, bytes(changed))
        except AuthenticationFailed:
            continue
        assert step.user == "alice"
        accepted += 1
        assert signed().partition(".")[0].encode() in bytes(changed), "only a change outside the token may pass"
    assert accepted < 300


@pytest.mark.parametrize(
    ("name", "accepted"), [("", True), ("alice", True), ("a=lice", False), ("bob", False), ("=2C", False)]
)
async def test_the_authorization_id_must_be_the_users(tokens: Tokens, name: str, accepted: bool) -> None:
    users = MemoryUsers({})
    users.bearer = tokens.bearer  # type: ignore[method-assign]
    message = f"n,a={name},\x01auth=bearer  {signed()}\x01\x01".encode()
    if accepted:
        assert (await check_bearer(users, HERE, message)).user == "alice"
        return
    with pytest.raises(AuthenticationFailed):
        await check_bearer(users, HERE, message)


# The provider's keys.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not a JSON Web Key Set: "),
        (b"[]", "not a JSON Web Key Set: "),
        (b'{"keys":' + b"[" * 100_000, "not a JSON Web Key Set: "),
        (b'{"keys":[]}', "no key for signatures among 0; supported: EC-P-256, "),
        (document({"kty": "oct", "k": "c2VjcmV0", "kid": "rsa"}), "no key for signatures among 1"),
        (document(public(RSA, "rsa", use="enc")), "no key for signatures among 1"),
        (document(public(RSA, "rsa", alg="HS256")), "no key for signatures among 1"),
        (document({"kty": "RSA", "n": "!", "e": "AQAB"}, {"kty": ["RSA"]}), "no key for signatures among 2"),
        (document(*[public(EC, "ec")] * (KEYS_MAX + 1)), "101 keys; at most 100 are allowed"),
    ],
)
def test_an_unusable_key_set_is_an_error(text: bytes, message: str) -> None:
    with pytest.raises(JwksError) as error:
        parsed(text)
    assert str(error.value).startswith(message)


def test_private_members_of_a_key_are_ignored() -> None:
    (key,) = parsed(document({**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA)), "kid": "rsa"}))
    assert isinstance(key.public, rsa.RSAPublicKey)


async def test_a_rotated_key_is_accepted_and_a_withdrawn_one_refused(file: Path) -> None:
    async with validator(file.as_uri()) as tokens:
        old, new = signed(), signed(OTHER_RSA, kid="new")
        await tokens.bearer(old, HERE)
        write(file, document(public(OTHER_RSA, "new")))
        await tokens.bearer(new, HERE)
        assert await why(tokens, old) == NO_KEY, "also if it was accepted before"


async def test_keys_are_fetched_again_after_the_refresh_interval(file: Path) -> None:
    async with validator(file.as_uri(), refresh_s=0.02) as tokens:
        await tokens.bearer(signed(), HERE)
        before = tokens.keys.keys
        write(file, document(public(OTHER_RSA, "new")))
        await until(lambda: tokens.keys.keys is not before)
        assert await why(tokens, signed()) == NO_KEY


HANGS: Final = b" and then nothing"
"""The end of an answer after which the provider sends nothing."""


@asynccontextmanager
async def provider(*answers: bytes | None) -> AsyncIterator[tuple[str, list[int]]]:
    """Serves one answer after another, then the last one forever; None: nothing is sent. Yields the URL and a list
    that grows with each request."""
    seen: list[int] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        answer = answers[min(len(seen), len(answers) - 1)]
        seen.append(1)
        writer.write((answer or b"").removesuffix(HANGS))
        if answer is None or answer.endswith(HANGS):
            await reader.read()  # until the client gives up
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/jwks", seen
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, "TimeoutError"),
        (response(b"", "302 Found", "Location: http://169.254.169.254/"), "redirects to http://169.254.169.254/"),
        (response(b"", "500 Oops"), "status 500, expected 200"),
        (response(b'{"keys":[]}'), "no key for signatures"),
        (response(ALL + b" " * BYTES_MAX), f"more than {BYTES_MAX} bytes"),
        (response(ALL)[:-9], ""),
        (response(ALL)[:-9] + HANGS, "TimeoutError"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"ffff\r\n" + b" " * 65535 + HANGS, "TimeoutError"),
        (b"garbage\r\n\r\n", ""),
    ],
)
async def test_a_failing_provider_leaves_the_keys_as_they_were(
    bad: bytes | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "FETCH_S", 0.5)
    async with provider(response(ALL), bad) as (url, _), validator(url) as tokens:
        await tokens.bearer(signed(), HERE)
        with capture_logs() as logs:
            assert await why(tokens, signed(kid="unknown")) == NO_KEY
        (line,) = [each for each in logs if each["event"] == "jwks_failed"]
        assert reason in line["why"]
        assert (await tokens.bearer(signed(sub="bob"), HERE)).user == "bob"


async def test_a_key_set_that_shrinks_over_a_socket_withdraws_the_missing_key() -> None:
    less = document(public(EC, "ec", use="sig"))
    async with provider(response(ALL), response(less)) as (url, seen), validator(url, refresh_s=0.02) as tokens:
        await tokens.bearer(signed(EC, "ES256", "ec"), HERE)
        await until(lambda: len(seen) >= 2 and len(tokens.keys.keys) == 1)
        assert await why(tokens, signed()) == NO_KEY
        assert (await tokens.bearer(signed(EC, "ES256", "ec"), HERE)).user == "alice"


async def test_logins_wait_for_a_provider_that_comes_back(file: Path) -> None:
    async with provider(b"", b"", response(ALL)) as (url, seen), validator(url) as tokens:
        await why(tokens, signed(kid="unknown"))
        await until(lambda: len(seen) >= 3 and bool(tokens.keys.keys))
        assert (await tokens.bearer(signed(), HERE)).user == "alice"


async def test_invented_key_ids_cause_no_storm_and_no_delay_of_others() -> None:
    """10,000 wrong tokens next to right ones: at most one fetch for each back-off."""
    wrong = [signed(OTHER_RSA), *(raw({"alg": "RS256", "kid": str(number)}) for number in range(5000))]
    async with provider(response(ALL)) as (url, seen), validator(url, backoff_s=0.1, backoff_max_s=10) as tokens:
        await tokens.bearer(signed(), HERE)
        began = time.monotonic()
        flood = [asyncio.create_task(tokens.bearer(each, HERE)) for each in [wrong[0]] * 5000 + wrong[1:]]
        batch = [0, 0]
        """Logins refused in this iteration of the loop, and the most in one."""

        def refused(_: object) -> None:
            if batch[0] == 0:
                asyncio.get_running_loop().call_soon(batch.__setitem__, 0, 0)
            batch[:] = batch[0] + 1, max(batch[1], batch[0] + 1)

        for task in flood[5000:]:
            task.add_done_callback(refused)
        for number in range(20):
            assert (await tokens.bearer(signed(sub=f"user-{number}"), "10.0.0.2")).user == f"user-{number}"
        results = await asyncio.gather(*flood, return_exceptions=True)
        assert all(isinstance(each, AuthenticationFailed) for each in results)
        took = time.monotonic() - began
        assert len(seen) <= 3 + math.log2(1 + took / 0.1), "the back-off doubles"
        assert batch[1] <= 3 * tokens_module.WOKEN_AT_ONCE, "the loop does other work between the refusals"
