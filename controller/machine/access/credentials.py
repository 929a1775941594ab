"""Decides on AlterUserScramCredentials (KIP-554, RFC 5802), and on the secret for fake credentials.

Constraints: this module never gets a password. The API handler derives the stored key and the server key from the
client's salted password; only these keys are in the command and the log. The handler also checks the permission.
Method: Kafka's rules and codes (`ScramControlManager`). If a request names a user twice, none of that user's changes
are made; those of other users are.
"""

from __future__ import annotations

from typing import TypeAlias

from controller.machine.commands.access import AlterUserScramCredentials, DrawLoginSecret, ScramRemoval, ScramUpsert
from controller.machine.decision import NOTHING, Answer, Decision, Detail
from controller.machine.errors import ErrorCode
from controller.machine.state import Cluster, State
from events.access import LoginSecretDrawn, ScramCredentialRemoved, ScramCredentialSet

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""SCRAM mechanisms by Kafka's numbers."""
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384

_Change: TypeAlias = ScramRemoval | ScramUpsert
_TWICE = Detail(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def alter_credentials(state: State, command: AlterUserScramCredentials) -> Decision:
    """Removes and sets credentials of users. The answer has a detail for each removal, then for each upsert."""
    changes: tuple[_Change, ...] = (*command.removals, *command.upserts)
    outcomes: dict[str, Detail] = {}
    for change in changes:
        before = outcomes.get(change.user)
        if before is None:
            outcomes[change.user] = _check(state.cluster, change)
        elif not before.code:
            outcomes[change.user] = _TWICE
    events = tuple(_event(command, change) for change in changes if not outcomes[change.user].code)
    details = tuple(outcomes[change.user] for change in changes)
    return Decision(events, (Answer(command.request_id, command.topic, 0, details=details),))


def draw_secret(state: State, command: DrawLoginSecret) -> Decision:
    """Records the secret for fake credentials, unless there is one: several gateways may send this command at once."""
    return NOTHING if state.cluster.login_secret else Decision((LoginSecretDrawn(command.secret),))


def _check(cluster: Cluster, change: _Change) -> Detail:
    if not change.user:
        return Detail(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in MECHANISMS:
        return Detail(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramRemoval):
        if (change.user, MECHANISMS[change.mechanism]) not in cluster.scram:
            return Detail(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    elif not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        how = "few" if change.iterations < ITERATIONS_MIN else "many"
        return Detail(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {how} iterations")
    return Detail()


def _event(command: AlterUserScramCredentials, change: _Change) -> ScramCredentialSet | ScramCredentialRemoved:
    mechanism, who = MECHANISMS[change.mechanism], (command.principal, command.client_id, command.host)
    if isinstance(change, ScramRemoval):
        return ScramCredentialRemoved(command.request_id, change.user, mechanism, *who)
    keys = (change.iterations, change.salt, change.stored_key, change.server_key)
    return ScramCredentialSet(command.request_id, change.user, mechanism, *keys, *who)
