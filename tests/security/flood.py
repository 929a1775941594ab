"""A flood of wrong tokens from one address next to right logins from another: `python -m tests.security.flood`.

Prints how many wrong logins a second the listener refused, how long the right logins took, and for how long the event
loop kept a timer waiting: on a busy machine only the processor time says how long it held the loop. Flood, right logins
and listener are processes of their own. Half of the wrong tokens have a wrong signature, which a thread checks; the
others name keys that the provider does not have.
"""

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

from controller.kafka.codec.codec import encode_request
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.access import SaslAuthenticateRequest, SaslHandshakeRequest
from controller.kafka.sasl import bearer_message
from controller.kafka.sasl_gate import SaslRules
from controller.kafka.server.server import UNLIMITED, ConnectionCounts
from controller.serving.log_lines import configure_logs
from controller.serving.process import tune_interpreter

FLOODING, RIGHT = "127.0.0.2", "127.0.0.3"
DELAY_MS = 100
"""`connection.failed.authentication.delay.ms`, by default."""


def _login(token: str) -> bytes:
    """The frames of a login, in one write."""
    handshake: Message = SaslHandshakeRequest(mechanism="OAUTHBEARER")
    message = SaslAuthenticateRequest(auth_bytes=bearer_message(token))
    both = (ApiKey.SASL_HANDSHAKE, handshake), (ApiKey.SASL_AUTHENTICATE, message)
    return b"".join(encode_request(key, 1, number, "flood", each) for number, (key, each) in enumerate(both))


async def _log_in(port: int, address: str, frames: bytes) -> bool:
    """True if the listener accepts the token. Ends the connection without TIME_WAIT, which would exhaust the ports."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        writer.write(frames)
        for _ in range(2):
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        return answer[4:6] == b"\0\0" and b"invalid_token" not in answer
    finally:
        writer.transport.abort()


async def _flood(port: int, until_s: float, tokens: list[str], width: int) -> dict[str, Any]:
    """Log in with wrong tokens, `width` at a time."""
    frames, refused = itertools.cycle([_login(each) for each in tokens]), 0

    async def attack() -> None:
        nonlocal refused
        while time.monotonic() < until_s:
            with suppress(OSError, asyncio.IncompleteReadError):
                assert not await _log_in(port, FLOODING, next(frames))
                refused += 1

    await asyncio.gather(*(attack() for _ in range(width)))
    return {"refused": refused}


async def _right(port: int, until_s: float, tokens: list[str]) -> dict[str, Any]:
    """Log in with right tokens, one after another."""
    took_ms = []
    for token in tokens:
        if time.monotonic() >= until_s:
            break
        frames, began_s = _login(token), time.monotonic()
        assert await _log_in(port, RIGHT, frames), "a right token is refused"
        took_ms.append((time.monotonic() - began_s) * 1000)
        await asyncio.sleep(0.02)
    return {"took_ms": took_ms}


async def _held(late_ms: list[float], cpu_ms: list[float]) -> None:
    """Records how much later than asked the event loop wakes this task, and its processor time meanwhile."""
    while True:
        began_s, cpu_s = time.monotonic(), time.thread_time()
        await asyncio.sleep(0.005)
        late_ms.append((time.monotonic() - began_s) * 1000 - 5)
        cpu_ms.append((time.thread_time() - cpu_s) * 1000)


async def _client(kind: str, port: int, seconds: float, width: int, tokens: list[str]) -> Any:
    words = ["-m", "tests.security.flood", "--client", kind, "--port", str(port)]
    numbers = ["--seconds", str(seconds), "--width", str(width)]
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *words, *numbers, stdin=pipe, stdout=pipe)
    out, _ = await process.communicate(json.dumps(tokens).encode())
    assert process.returncode == 0, kind
    return json.loads(out)


async def measured(seconds: float, width: int, per_ip_max: int) -> dict[str, Any]:
    """Flood a listener. Raises AssertionError if a wrong token passes or a right one does not."""
    from tests.access.test_tokens import ALL, OTHER_RSA, raw, signed, validator  # the clients start without them
    from tests.kafka.sasl_users import MECHANISMS, MemoryUsers
    from tests.kafka.server.listener import serving

    wrong = [raw({"alg": "RS256", "kid": f"none-{number}"}) for number in range(2000)]
    wrong += [signed(OTHER_RSA, sub=f"user-{number}") for number in range(500)] * 4
    right = [signed(sub=f"user-{number}") for number in range(int(seconds * 40) + 10)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "jwks.json")
        file.write_bytes(ALL)  # noqa: ASYNC240 - before the flood
        users, late_ms, cpu_ms = MemoryUsers({}), [0.0], [0.0]
        async with validator(file.as_uri(), backoff_s=0.1, backoff_max_s=10) as tokens:
            users.bearer = tokens.bearer  # type: ignore[method-assign]
            rules = SaslRules(mechanisms=MECHANISMS, users=users, now=time.time, failed_delay_ms=DELAY_MS)
            async with serving({}, sasl=rules, counts=ConnectionCounts(per_ip_max)) as server:
                tune_interpreter()
                watch = asyncio.create_task(_held(late_ms, cpu_ms))
                flood = asyncio.create_task(_client("flood", server.port, seconds, width, wrong))
                refused, logins = await asyncio.gather(flood, _client("right", server.port, seconds, width, right))
                watch.cancel()
    took_ms = sorted(logins["took_ms"])
    return {
        "refused": refused["refused"],
        "refused_per_s": round(refused["refused"] / seconds),
        "right": len(took_ms),
        "right_median_ms": round(took_ms[len(took_ms) // 2], 1),
        "right_max_ms": round(took_ms[-1], 1),
        "loop_late_max_ms": round(max(late_ms), 1),
        "loop_cpu_max_ms": round(max(cpu_ms), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--width", type=int, default=1000, help="wrong logins at a time")
    parser.add_argument("--per-ip-max", type=int, default=UNLIMITED, help="max.connections.per.ip")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client is None:
        configure_logs("warning")
        print(json.dumps(uvloop.run(measured(options.seconds, options.width, options.per_ip_max)), indent=2))
        return
    tokens, until_s = json.load(sys.stdin), time.monotonic() + options.seconds
    kind = _right(options.port, until_s, tokens)
    if options.client == "flood":
        kind.close()
        kind = _flood(options.port, until_s, tokens, options.width)
    print(json.dumps(uvloop.run(kind)))


if __name__ == "__main__":
    main()
