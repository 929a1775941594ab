"""Every reading command gives the same answer from a service and from a folder, in every format; and helpful errors."""

import asyncio
import json
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from controller.cli import backend
from tests.cli.commands import Run, open_log
from tests.http.service import service
from tests.support.topicwright import COMMAND

ENDLESS_CHUNK = b"Transfer-Encoding: chunked\r\n\r\n10000000000\r\n"


def test_json_yaml_and_wide_output_contain_the_same_data(offline: Run) -> None:
    for words in (("topics",), ("topics", "u"), ("requests",), ("brokers",), ("settings",), ("explain", "u")):
        as_json = json.loads(offline(*words, "-o", "json").out)
        assert yaml.safe_load(offline(*words, "-o", "yaml").out) == as_json, words
    events = [json.loads(line) for line in offline("events", "-o", "json").out.splitlines()]
    assert list(yaml.safe_load_all(offline("events", "-o", "yaml").out)) == events
    wide = offline("topics", "-o", "wide").out
    assert wide.splitlines()[0].split()[-4:] == ["ID", "READY", "REQUEST", "CONFIGS"]
    assert "retention.ms=5" in wide


async def test_a_service_and_its_folder_give_the_same_output(run: Run, tmp_path: Path) -> None:
    log = open_log(tmp_path / "data")
    commands: list[tuple[object, ...]] = [
        ("topics",),
        ("topics", "--json"),
        ("topics", "--at", 9),
        ("topics", "a.t"),
        ("topics", "a.t", "--at", 10, "--json"),
        ("topics", "none"),
        ("topics", "--at", 9999),
        ("events",),
        ("events", "--topic", "a.t", "--json"),
        ("events", "--tail", 7),
        ("events", "--type", "TopicCreated", "--until", 12, "--since", "1h"),
        ("explain", "a.t"),
        ("explain", "none"),
        ("explain", "a.t", "--at", 9),
        ("requests",),
        ("requests", "--json"),
        ("brokers", "-o", "wide"),
        ("settings",),
        ("settings", "none"),
        ("diff", 3),
        ("diff", 3, 9, "--json"),
        ("diff", 9999),
    ]
    async with service(log=log) as one:
        await one.create("a.t", num_partitions=2)
        await one.request("DELETE", "/v1/topics/a.t")
        await one.create("a.t", num_partitions=2)
        address = f"127.0.0.1:{one.port}"
        online = [await asyncio.to_thread(run, *command, "--http", address) for command in commands]
        locked = await asyncio.to_thread(run, "topics", "--data", tmp_path / "data")
    log.close()
    assert locked.code == 2
    assert "one process writes a log" in locked.err
    assert "--http HOST:PORT" in locked.err
    assert [one.code for one in online] == [0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 2]
    for command, seen in zip(commands, online, strict=True):
        assert await asyncio.to_thread(run, *command, "--data", tmp_path / "data") == seen, command


async def test_an_unreachable_service_and_an_unknown_server_have_different_errors(run: Run) -> None:
    async def not_ours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(not_ours, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    other = await asyncio.to_thread(run, "topics", "--http", address)
    server.close()
    await server.wait_closed()
    nobody = await asyncio.to_thread(run, "topics", "--http", address)
    assert other.code == nobody.code == 2
    assert f"the server at {address} is not a Topicwright service" in other.err
    assert f"no answer from a service at {address} (Connection refused)" in nobody.err
    assert "--data DIR" in nobody.err


async def test_a_port_of_tls_without_https(run: Run) -> None:
    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x15\x03\x03\x00\x02\x02\x0a")  # unexpected_message
        writer.close()

    server = await asyncio.start_server(alert, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    refused = await asyncio.to_thread(run, "status", "--http", address)
    server.close()
    assert f"is this the port of Kafka clients? If it speaks TLS, write https://{address})" in refused.err


@pytest.mark.parametrize("command", [("topics",), ("events", "--follow")])
@pytest.mark.parametrize("head", [b"Content-Length: 99999999999999\r\n\r\n", ENDLESS_CHUNK, b"\r\n"])
async def test_response_without_end(
    run: Run, monkeypatch: pytest.MonkeyPatch, head: bytes, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(backend, "_ANSWER_BYTES_MAX", 4 << 20)

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + head)
        with suppress(ConnectionError):
            while True:
                writer.write(b" " * (1 << 20))
                await writer.drain()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    ended = await asyncio.to_thread(run, *command, "--http", address)
    server.close()
    assert (ended.code, ended.out) == (2, "")
    assert f"the service at {address} sends more than 4194304 bytes in an answer" in ended.err


# arguments | standard error
MISUSE = """
topic create --dry-run                  | the following arguments are required: NAME
topic create t --dry-run --timeout-ms 3 | --dry-run does not wait, so it cannot be used with --timeout-ms
topic create t --config retention       | argument --config: 'retention' is not KEY=VALUE
topic create t --partitions many        | argument --partitions: invalid int value: 'many'
topic alter t                           | nothing to change: give --config KEY=VALUE or --delete-config KEY
topic grow t                            | the following arguments are required: --partitions
topic shrink t                          | unknown value 'shrink'; allowed: create, delete, recreate, alter, grow, label
topics --at tomorrow                    | argument --at: 'tomorrow' is not a valid point in time: use an offset (1234)
topics --at 25:00                       | argument --at: hour must be in 0..23
topics t --status ready                 | a filter of a list, such as --status, cannot
topics --statsu ready                   | unknown flag --statsu; did you mean --status?
topics --stat ready                     | unknown flag --stat; did you mean --status?
topics a b                              | unexpected argument 'b'
events --type TopicCreate              | argument --type: 'TopicCreate' is not an event type; did you mean TopicCreated?
events --follow --tail 3                | --follow does not end, so it cannot be used with --until or --tail
events --tail 0                         | argument --tail: '0' is not a number from 1 to 100000
list                                    | unknown value 'list'; did you mean `topicwright topics`?
version                                 | unknown value 'version'; did you mean `topicwright --version`?
topic describe                          | did you mean `topicwright topics NAME`?
events --type Created                   | 'Created' is not an event type; did you mean AclsCreated or TopicCreated?
topcs                                   | unknown value 'topcs'; did you mean topics?
topics --http here                      | argument --http: 'here' is not [https://]HOST:PORT with a port from 1 to 65535
topics --http h:0                       | argument --http: 'h:0' is not [https://]HOST:PORT with a port from 1 to 65535
topics --http h:1 --data x              | argument --data: not allowed with argument --http
topics --data nowhere                   | nowhere contains no log: name the folder that `topicwright serve --data`
explain                                 | the following arguments are required: TOPIC|REQUEST
explain EMPTY                           | argument TOPIC|REQUEST: must not be empty
topics EMPTY                            | argument NAME|PATTERN: must not be empty
worker --bootstrap nowhere              | 'nowhere' is not HOST:PORT
worker --bootstrap EMPTY | '' is not HOST:PORT
worker --bootstrap h:1,:2 | 'h:1,:2' is not HOST:PORT, several separated by commas
worker --bootstrap h:0 | 'h:0' is not HOST:PORT
worker --bootstrap h:65536 | 'h:65536' is not HOST:PORT
worker --bootstrap h:1 --kafka-properties no.properties | --kafka-properties=no.properties cannot be
worker --bootstrap h:1 --set stream.partitions=0 | stream.partitions=0
worker --bootstrap h:1 --set stream.partition=1 | did you mean stream.partitions?
gateway --bootstrap nowhere             | 'nowhere' is not HOST:PORT
worker --bootstrap h:1 --brokers simulated:0 | simulated:N
worker --bootstrap h:1 --brokers cluster:h | 'h' is not HOST:PORT
"""


@pytest.mark.parametrize("line", MISUSE.strip().splitlines())
def test_usage_errors(line: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, message = (column.strip() for column in line.split(" | ", 1))
    outcome = run(*("" if word == "EMPTY" else word for word in arguments.split()))
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.startswith("topicwright")
    assert len(outcome.err.splitlines()) <= 2, "no usage of many lines"
    assert not list(tmp_path.iterdir()), "no file is created"


def test_a_full_disk_on_standard_output_is_reported(stopped: Path) -> None:
    with Path("/dev/full").open("w") as full:
        argv: list[str | Path] = [COMMAND, "events", "--data", stopped]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    assert done.returncode == 2
    assert done.stderr == "topicwright: cannot write to standard output: No space left on device\n"


def test_a_closed_pipe_is_no_error(stopped: Path) -> None:
    argv = f"{COMMAND} events --data {stopped} | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", argv], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
