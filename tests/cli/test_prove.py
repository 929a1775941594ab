"""`topicwright prove` and `verify`, and the stand-alone verifier in docs/: they accept valid proofs and reject all
others."""

import asyncio
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from controller.cli.backend import HttpBackend
from controller.machine.commands.access import DrawLoginSecret
from controller.machine.commands.commands import RecordHead
from controller.store.tree import HEAD
from events.logs.log import Commit
from events.logs.merkle import Frontier
from events.logs.tree_heads import FILE_BYTES_MAX, Head, HeadSigner
from tests.cli.commands import CLUSTER_ID, Outcome, Run, open_log
from tests.events.logs.test_tree_heads import key_files
from tests.http.service import service
from tests.replay.history import signed_head
from tests.support.tools import ROOT
from tests.support.topicwright import Topicwright, topicwright

VERIFIER = ROOT / "docs" / "verify_proof.py"


class Stopped(NamedTuple):
    """The folder of a stopped service, and the public key of a tree head over its first events."""

    folder: Path
    public: Path


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    tmp_path = tmp_path_factory.mktemp("stopped")

    async def live() -> None:
        log = open_log(tmp_path / "data")
        async with service(log=log) as one:
            one.submit_internal(DrawLoginSecret, secret=b"s" * 9)
            for number in range(30):
                await one.create(f"pay.t{number}")
            one.submit_internal(RecordHead, **signed_head(log, HeadSigner.read(key_files(tmp_path)[0])))
            await one.controller.decided()
            await one.create("later")
        log.close()

    asyncio.run(live())
    return Stopped(tmp_path / "data", tmp_path / "public.pem")


def proof_of(run: Run, tmp_path: Path, *arguments: object) -> Path:
    outcome = run("prove", *arguments)
    assert outcome.code == 0, outcome.err
    file = tmp_path / "proof.json"
    file.write_text(outcome.out)
    return file


def by_itself(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the verifier in docs/ without access to the project or any package."""
    argv = [sys.executable, "-I", "-S", str(VERIFIER), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False, env={}, cwd="/")


def verified(run: Run, *arguments: object) -> Outcome:
    """The outcome of `verify`, after checking that the verifier in docs/ ends with the same exit code."""
    outcome, alone = run("verify", *arguments), by_itself(*arguments)
    assert (alone.returncode, "Traceback" in alone.stderr) == (outcome.code, False), alone
    return outcome


def test_the_verifier_imports_only_the_standard_library() -> None:
    lines = VERIFIER.read_text().splitlines()
    assert len(lines) < 150
    imported = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
    assert imported <= sys.stdlib_module_names


def test_a_proof_verifies_with_the_public_key_of_the_service(run: Run, stopped: Stopped, tmp_path: Path) -> None:
    events = run("events", "--topic", "pay.t5", "--data", stopped.folder, "--json").out.splitlines()
    request = json.loads(events[0])["cause"]["request_id"]
    for subject, about in (("pay.t3", "topic pay.t3"), ("0", "offset 0"), (request, f"request {request}")):
        proof = proof_of(run, tmp_path, subject, "--data", stopped.folder)
        assert json.loads(proof.read_text())["about"] == about
        checked = run("verify", proof, "--key", stopped.public)
        assert (checked.code, checked.err) == (0, "")
        assert checked.out.startswith("valid: ")
        assert "2023-11-14T22:13:20" in checked.out.splitlines()[0], "it prints the signing time"
        alone = by_itself(proof, "--key", stopped.public)
        assert (alone.returncode, alone.stderr) == (0, "")
        assert alone.stdout.splitlines()[-1].startswith("valid: ")
        if subject == "pay.t3":
            assert "TopicCreated" in checked.out
            assert '["TopicCreated", "' in alone.stdout


def test_a_proof_of_an_event_with_a_secret_contains_only_its_hash(run: Run, stopped: Stopped, tmp_path: Path) -> None:
    events = [json.loads(line) for line in run("events", "--data", stopped.folder, "--json").out.splitlines()]
    (secret,) = (each["offset"] for each in events if each["type"] == "LoginSecretDrawn")
    proof = proof_of(run, tmp_path, secret, "--data", stopped.folder)
    assert "value" not in json.loads(proof.read_text())["events"][0]
    assert "only the hash is shown" in run("verify", proof, "--key", stopped.public).out
    assert "only its hash is shown" in by_itself(proof, "--key", stopped.public).stdout


def test_a_limited_proof_continues_with_from(run: Run, stopped: Stopped, tmp_path: Path) -> None:
    outcome = run("prove", "pay.t3", "--data", stopped.folder, "--limit", 2)
    said = outcome.err.splitlines()
    assert said[0].startswith("2 events of topic pay.t3, proved by a head of ")
    assert said[0].endswith("events, signed")
    start = said[1].removeprefix("more events exist: continue with --from ")
    rest = run("prove", "pay.t3", "--data", stopped.folder, "--from", start)
    assert len(json.loads(rest.out)["events"]) > 1


def test_verify_reports_the_time_of_the_saved_tree_head(run: Run, stopped: Stopped, tmp_path: Path) -> None:
    file = proof_of(run, tmp_path, "pay.t3", "--data", stopped.folder)
    proof, kept = json.loads(file.read_text()), tmp_path / "kept.json"
    kept.write_text(json.dumps(proof["head"]))
    for at_ms, code in ((0, 0), (2**63 - 1, 1)):
        proof["head"]["at_ms"] = at_ms
        file.write_text(json.dumps(proof))
        checked = run("verify", file, "--head", kept)
        assert checked.code == code
        assert code or "at 2023-11-14T22:13:20" in checked.out


def test_proof_against_a_saved_head(run: Run, stopped: Stopped, tmp_path: Path) -> None:
    proof = proof_of(run, tmp_path, "later", "--data", stopped.folder)
    unsigned = verified(run, proof, "--key", stopped.public)
    assert (unsigned.code, "its head is not signed\n" in unsigned.err) == (1, True), unsigned
    nobody = run("verify", proof)
    assert nobody.code == 2
    assert "to check the head itself, give" in nobody.err
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps({"head": json.loads(proof.read_text())["head"]}))
    assert verified(run, proof, "--head", kept).code == 0
    older = run("prove", "pay.t3", "--data", stopped.folder, "--head", kept)
    again = tmp_path / "again.json"
    again.write_text(older.out)
    assert verified(run, again, "--head", kept).code == 0
    signed = proof_of(run, tmp_path, "pay.t3", "--data", stopped.folder)
    other = verified(run, signed, "--head", kept)
    assert other.code == 1
    assert "create the proof with `topicwright prove --head`" in other.err


CHANGES = """
proof["events"][1]["value"] = proof["events"][0]["value"]
proof["events"][1]["offset"] += 1
proof["events"][0]["offset"], proof["events"][1]["offset"] = proof["events"][1]["offset"], proof["events"][0]["offset"]
proof["events"][0]["path"][3] = proof["events"][0]["path"][2]
proof["events"][0]["path"].pop()
proof["events"][0]["path"] *= 2
proof["head"]["root"] = "0" * 64
proof["head"]["size"] += 1
proof["head"]["at_ms"] += 1
proof["head"]["log"] = "another"
proof["head"]["signature"] = "A" * 86 + "=="
del proof["head"]["signature"]
proof["head"] = signed_by_another(proof["head"])
del proof["events"][0]["value"]
proof["events"] = []
proof["events"][1] = proof["events"][0]
proof["events"].reverse()
proof["format"] = "topicwright proof 2"
proof["head"]["at_ms"] = str(proof["head"]["at_ms"])
proof["events"][0]["path"] = dict.fromkeys(proof["events"][0]["path"])
"""
"""Statements that change a proof."""


def signed_by_another(head: dict[str, Any]) -> Any:
    """The same tree head, signed with another key."""
    another = HeadSigner(Ed25519PrivateKey.from_private_bytes(b"o" * 32))
    return msgspec.to_builtins(another.signed(msgspec.convert(head, Head, strict=False)))


def test_a_changed_proof_does_not_verify(run: Run, stopped: Stopped, tmp_path: Path) -> None:
    """Changed events are checked against a saved tree head, because the verifier in docs/ is slow at signatures."""
    file, kept = proof_of(run, tmp_path, "pay.t3", "--data", stopped.folder), tmp_path / "kept.json"
    whole = file.read_text()
    kept.write_text(json.dumps(json.loads(whole)["head"]))
    for change in CHANGES.strip().splitlines():
        proof = json.loads(whole)
        exec(change, {"proof": proof, "signed_by_another": signed_by_another})
        file.write_text(json.dumps(proof))
        assert run("verify", file, "--key", stopped.public).code == 1, change
        alone = by_itself(file, *(("--head", kept) if "events" in change else ("--key", stopped.public)))
        assert alone.returncode == 1, change
        assert alone.stderr.startswith("does not hold: "), change
        assert "Traceback" not in alone.stderr, change


def test_control_characters_of_a_proof_do_not_reach_the_terminal(run: Run, stopped: Stopped, tmp_path: Path) -> None:
    file, acts = proof_of(run, tmp_path, "pay.t3", "--data", stopped.folder), "\x1b]0;owned\x07\u202e\n"
    proof = json.loads(file.read_text())
    for changed in (
        {"head": {**proof["head"], "log": acts}, "events": []},
        {**proof, "events": [{**proof["events"][0], "offset": acts}]},
        {**proof, "events": [{acts: 1}]},
    ):
        file.write_text(json.dumps(changed))
        kept = tmp_path / "head.json"
        kept.write_text(json.dumps(changed["head"]))
        alone = by_itself(file, "--head", kept)
        assert (alone.stdout + alone.stderr).rstrip("\n").isprintable(), alone


def test_malformed_proofs_do_not_verify(run: Run, stopped: Stopped, tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    deep = "[" * 100_000
    for text in ("", "{", "[]", "null", deep, '{"head": 1}', '{"format": "topicwright proof 9"}', "\ud800", "1e999"):
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        outcome = verified(run, file, "--key", stopped.public)
        assert (outcome.code, "it is not a proof" in outcome.err) == (1, True), text


def test_oversized_proof_and_key_files_are_rejected(run: Run, stopped: Stopped, tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    with file.open("wb") as large:
        large.truncate(FILE_BYTES_MAX + 1)
    assert "larger than" in run("verify", file, "--key", stopped.public).err
    assert "larger than" in run("verify", stopped.folder, "--head", file).err
    assert "larger than" in run("verify", stopped.folder, "--key", file).err
    assert by_itself(file, "--key", stopped.public).returncode == 1


WRONG = """
verify nowhere --key PUBLIC              | 2 'nowhere' is not a file, not a folder, and not [https://]HOST:PORT
verify FOLDER --head none.json           | 2 none.json cannot be read: No such file
verify FOLDER --head PUBLIC              | 2 contains no head
verify FOLDER --key PRIVATE              | 2 it must be an Ed25519 public key in PEM
verify FOLDER --partition 3              | 2 --partition 3
verify 127.0.0.1:1                       | 2 no answer from a service at 127.0.0.1:1
prove nonesuch --data FOLDER             | 1 there is no event of request nonesuch
prove 99999 --data FOLDER                | 1 there is no event at offset 99999: the log ends at
prove 3 --data FOLDER --partition 1      | 2 there is no partition 1; this log has none
prove 3 --data FOLDER --head PUBLIC      | 2 contains no head
"""


def test_invalid_usage_is_reported(run: Run, stopped: Stopped, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    words = {"FOLDER": stopped.folder, "PUBLIC": stopped.public, "PRIVATE": stopped.public.with_name("key.pem")}
    for line in WRONG.strip().splitlines():
        command, expected = (column.strip() for column in line.split("|"))
        outcome = run(*(words.get(word, word) for word in command.split()))
        code, says = expected.split(" ", 1)
        assert outcome.code == int(code), f"{command}: {outcome}"
        assert says in outcome.err, f"{command}: {outcome}"


def test_verify_checks_all_events_of_a_data_folder(run: Run, stopped: Stopped, tmp_path: Path) -> None:
    kept = proof_of(run, tmp_path, "pay.t3", "--data", stopped.folder)
    outcome = run("verify", stopped.folder, "--key", stopped.public, "--head", kept)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"{CLUSTER_ID}: ")
    assert "match the saved head, with 1 signed heads; root " in outcome.out
    copy = shutil.copytree(stopped.folder, tmp_path / "copy")
    log = open_log(copy)
    log.write(Commit(own={HEAD: log.next_offset.to_bytes(8, "big") + bytes(32)}))
    log.close()
    damaged = run("verify", copy)
    assert damaged.code == 1
    assert "the tree head stored with the log is not that of its first" in damaged.out


def test_verify_with_a_key_fails_without_signed_heads(run: Run, stopped: Stopped, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    backup, stranger = tmp_path / "backup", key_files(other)[1]
    assert run("backup", backup, "--data", stopped.folder).code == 0
    open_log(tmp_path / "empty").close()
    for what, key, code, says in (
        (backup, stopped.public, 0, "1 signed heads"),
        (backup, stranger, 1, "was not signed by that key"),
        (stopped.folder, stranger, 1, "was not signed by the expected key"),
        (tmp_path / "empty", stranger, 1, "no signed tree head is in the log"),
    ):
        outcome = run("verify", what, "--key", key)
        assert (outcome.code, says in outcome.out) == (code, True), outcome


def test_verify_rejects_a_head_of_no_known_partition(run: Run, stopped: Stopped, tmp_path: Path) -> None:
    kept = proof_of(run, tmp_path, "pay.t3", "--data", stopped.folder)
    for number in range(2):
        shutil.copytree(stopped.folder, tmp_path / "parts" / f"partition-{number:05}")
    outcome = run("verify", tmp_path / "parts", "--head", kept)
    assert outcome.code == 1
    assert "which is not among the partitions" in outcome.err


@pytest.mark.parametrize(("size", "root"), [(2, "0" * 64), (3, "1" * 64)])
def test_saved_head_of_a_replaced_log(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, root: str
) -> None:
    """A log was replaced. Asked for an older tree head, the server repeats its former answer."""
    head = {"log": CLUSTER_ID, "size": size, "root": root, "at_ms": 1}
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(head))
    new = Frontier()
    new.extend([b"a", b"b", b"c"], 64)
    answers: dict[str, dict[str, object]] = {
        "/v1/log/head": {"head": {**head, "size": 3, "root": new.root().hex()}},
        "/v1/log/leaves?from=0": {
            "leaves": [{"value": "YQ=="}, {"value": "Yg=="}, {"value": "Yw=="}],
            "next_offset": 0,
        },
        "/v1/log/leaves?from=2": {"leaves": [{"value": "Yw=="}], "next_offset": 0},
        "/v1/log/leaves?from=3": {"leaves": [], "next_offset": 0},
    }

    def answered(_: object, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        return 200, "0", json.dumps(answers[max(each for each in answers if path.startswith(each))]).encode()

    monkeypatch.setattr(HttpBackend, "_answer", answered)
    outcome = run("verify", "127.0.0.1:1", "--head", kept)
    assert outcome.code == 1
    assert f"the first {size} events were changed: their root is not that of the tree head" in outcome.out


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Topicwright, Path]]:
    folder = tmp_path_factory.mktemp("serving")
    private, public = key_files(folder)
    with topicwright(folder, {"log.signing.key.location": str(private), "log.signing.interval.ms": "50"}) as one:
        for number in range(40):
            body = json.dumps({"name": f"pay.t{number}"}).encode()
            urllib.request.urlopen(f"http://{one.http}/v1/topics", body, timeout=240).close()
        yield one, public


def test_verify_checks_a_running_service_over_http(run: Run, serving: tuple[Topicwright, Path], tmp_path: Path) -> None:
    one, public = serving
    with urllib.request.urlopen(f"http://{one.http}/v1/log/head", timeout=240) as answer:
        kept = tmp_path / "kept.json"
        kept.write_bytes(answer.read())
    proof = proof_of(run, tmp_path, "pay.t7", "--http", one.http)
    assert verified(run, proof, "--key", public).code == 0
    urllib.request.urlopen(f"http://{one.http}/v1/topics", b'{"name": "one.more"}', timeout=240).close()
    outcome = run("verify", one.http, "--key", public, "--head", kept)
    assert (outcome.code, outcome.err) == (0, "")
    assert "match the saved head; root " in outcome.out
    head = json.loads(kept.read_text())
    for change, says in (
        ({"root": "0" * 64}, "were changed: their root is not that of the tree head"),
        ({"size": 10**9}, "the log was truncated: it has "),
        ({"log": "other"}, "the tree head belongs to log other"),
    ):
        kept.write_text(json.dumps({"head": {**head["head"], **change}}))
        outcome = run("verify", one.http, "--head", kept)
        assert outcome.code == 1
        assert says in outcome.out
    other = tmp_path / "other"
    other.mkdir()
    assert "its head is not signed by that key" in run("verify", one.http, "--key", key_files(other)[1]).out
