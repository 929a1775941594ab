"""`topicwright users`: list, add and remove users in the log of a stopped service, a users file, or a running service.

In the log of a stopped service `alter_offline` decides the same command as AlterUserScramCredentials. So a log has a
first user before clients log in. A running service is changed through Kafka's protocol.
"""

import argparse
import getpass
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from controller.access.users import SALT_BYTES, add_token, read_users, remove_user, set_password
from controller.apis import errors_of
from controller.apis.access import ScramRow, scram_change
from controller.brokers.kraft.projector import MetadataProjector
from controller.cli.arguments import Negative
from controller.cli.folder import open_log
from controller.cli.output import show
from controller.cli.work.admin import call, check
from controller.kafka.messages import access
from controller.kafka.sasl import salted_password
from controller.machine.access.requests import MECHANISMS
from controller.machine.commands.commands import AlterUserScramCredentials, AnyCommand, ChangeSettings
from controller.machine.decide import decide
from controller.machine.decision import Detail
from controller.quorum.files import QuorumFiles
from controller.quorum.folder import META_PROPERTIES, FolderError, NodeFolder
from controller.quorum.log.batches import embedded_events, encode_batch
from controller.quorum.log.record_kinds import NUMBERS
from controller.quorum.raft.voters import VoterHistory
from controller.release import RELEASE
from controller.serving.process import new_cluster_id, wall_ms
from controller.settings.load import ServeSettings, load_settings
from controller.store.recorder import WITHOUT_METADATA_LOG, Recorder
from controller.store.store import TopicStore
from events.errors import UserError
from events.logs.rocksdb_log import RocksDbLog
from events.names import RequestId

# --- actions


def add(options: argparse.Namespace) -> None:
    if options.token:
        if options.file is None:
            raise UserError("--token needs --file: tokens exist only in users files")
        print(add_token(options.file, options.name))
        print(f"this token is shown only once; it logs in as User:{options.name}", file=sys.stderr)
        return
    password = _password(options.name)
    if options.file is not None:
        known = set_password(options.file, options.name, password)
        print(f"{'changed' if known else 'added'} {options.name} in {options.file}")
        return
    _alter(options, credential(options.name, options.mechanism, password, options.iterations))
    print(f"set {options.mechanism} of {options.name}")


def remove(options: argparse.Namespace) -> None:
    if options.file is not None:
        if not remove_user(options.file, options.name):
            raise Negative(f"there is no user {options.name} in {options.file}")
        print(f"removed {options.name}")
        return
    _alter(options, access.ScramCredentialDeletion(name=options.name, mechanism=NUMBERS[options.mechanism]))
    print(f"removed {options.name} for {options.mechanism}")


def list_(options: argparse.Namespace) -> int:
    users: list[tuple[str, str, int | None]]
    if options.file is not None:
        known = read_users(options.file)
        users = [(name, "password", None) for name in known.passwords]
        users += [(name, "token", None) for name in known.tokens.values()]
    elif options.data is not None:
        if not options.data.exists():
            raise UserError(f"there is no folder {options.data}")
        with closing(open_log(options.data)) as log:
            scram = TopicStore(log).durable_cluster.scram
        users = [(*key, one.iterations) for key, one in scram.items()]
    else:
        answer = call(options, access.DescribeUserScramCredentialsRequest())
        check(answer)
        infos = ((one.user, info) for one in answer.results for info in one.credential_infos)
        users = [(user, MECHANISMS[info.mechanism], info.iterations) for user, info in infos]
    users.sort(key=lambda one: one[:2])
    rows = [(name, how, "-" if iterations is None else iterations) for name, how, iterations in users]
    return show(
        options,
        {"users": [dict(zip(("name", "login", "iterations"), one, strict=True)) for one in users]},
        lambda style: style.table(("USER", "LOGIN", "ITERATIONS"), rows, "There are no users."),
        lambda: dict.fromkeys(name for name, _, _ in users),
    )


def _alter(options: argparse.Namespace, change: ScramRow) -> None:
    if options.data is not None:
        check(alter_offline(options.data, load_settings(options.config, options.set), change))
    else:
        kind = "upsertions" if isinstance(change, access.ScramCredentialUpsertion) else "deletions"
        rows: dict[str, Any] = {kind: (change,)}
        check(*call(options, access.AlterUserScramCredentialsRequest(**rows)).results)


def credential(name: str, mechanism: str, password: str, iterations: int) -> access.ScramCredentialUpsertion:
    salt = os.urandom(SALT_BYTES)
    salted = salted_password(mechanism, password, salt, iterations)
    return access.ScramCredentialUpsertion(
        name=name, mechanism=NUMBERS[mechanism], iterations=iterations, salt=salt, salted_password=salted
    )


# --- the log of a stopped service


PRINCIPAL = "User:CLI"
"""The principal of changes without the service; everyone who can write the data folder may make such changes."""


def alter_offline(data: Path, settings: ServeSettings, change: ScramRow) -> access.AlterUserScramCredentialsResult:
    """Change a user in a data folder, which is created if missing. KRaft brokers read the users from the metadata log,
    so the change goes there too. Raises LogError, also while a service uses the folder, and FolderError."""
    with closing(RocksDbLog(data, cluster_id=settings.cluster_id, new_cluster_id=new_cluster_id)) as log:
        is_voter = (data / META_PROPERTIES).exists()
        with _only_voter(data, log, settings) if is_voter else nullcontext() as files:
            projector = MetadataProjector(log)
            if files is not None:
                projector.log_end = lambda: files.end
            recorder = Recorder(log, TopicStore(log), WITHOUT_METADATA_LOG if files is None else projector)

            def record(kind: Callable[..., AnyCommand], **fields: object) -> tuple[Detail, ...]:
                command = kind(request_id=request_id, at_ms=at_ms, **fields)
                decision = decide(recorder.state, command)
                recorder.record_decision(command, decision.events)
                commit = recorder.take_commit()
                if files is not None and commit.entries:
                    for records in projector.batches(log.next_offset, [entry.value for entry in commit.entries]):
                        files.append(encode_batch(files.end, files.last_epoch, at_ms, records))
                    files.flush()
                log.write(commit)
                log.flush()
                return decision.answers[0].details if decision.answers else ()

            request_id = RequestId(f"users-{os.urandom(5).hex()}")
            at_ms = max(wall_ms(), recorder.last_ms)
            if not log.next_offset:  # the first event of every log has the settings
                record(ChangeSettings, settings=settings.decision_settings(), release=RELEASE)
            who = {"principal": PRINCIPAL, "client_id": "topicwright users"}
            details = record(AlterUserScramCredentials, changes=(scram_change(change),), **who)
            return access.AlterUserScramCredentialsResult(user=change.name, **errors_of(details[0]))


@contextmanager
def _only_voter(data: Path, log: RocksDbLog, settings: ServeSettings) -> Iterator[QuorumFiles]:
    """The metadata log of a stopped node that is the only voter, so that its appends are committed. Raises FolderError
    for a quorum with other voters, and for a node that was killed within a commit."""
    opened = NodeFolder(data, log.cluster_id, settings.node_id, lambda: os.urandom(16))
    with closing(opened) as node, closing(QuorumFiles(node.partition)) as files:
        voters = VoterHistory(files, ()).newest.ids
        if voters not in ((), (settings.node_id,)) or len(settings.controller_quorum_voters) > 1:
            raise FolderError(f"{data} belongs to one of several voters: change users with --bootstrap")
        unapplied = [each for each in files.batches(MetadataProjector(log).mark.applied) if not each.is_control]
        if any(embedded_events(batch.records[0][1]) is not None for batch in unapplied):
            raise FolderError(f"{data}: the service was killed in the middle of a commit: start it once to complete it")
        yield files


# --- passwords


def _password(name: str) -> str:
    """Read a password from the terminal (twice) or standard input. Raises UserError."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {name}: ")
        if getpass.getpass("repeat the password: ") != password:
            raise UserError("the passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise UserError("the password is empty: type one, or write it to the first line of standard input")
    return password
