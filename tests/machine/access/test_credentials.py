"""SCRAM credentials: Kafka's rules as a table, and the state after events."""

import pytest

from controller.machine.apply import CannotApply, apply
from controller.machine.commands.access import DrawLoginSecret
from controller.machine.commands.commands import AlterUserScramCredentials, ScramChange
from controller.machine.decide import decide
from controller.machine.decision import Decision
from controller.machine.state import Cluster, DictTopics, ScramCredential, State
from events.access import LoginSecretDrawn, ScramCredentialRemoved
from events.catalog import Cause, Event, Recorded
from events.codec import without_secrets
from events.names import Offset, RequestId

KNOWN = {("alice", "SCRAM-SHA-256"): ScramCredential(4096, b"salt", b"stored", b"server")}

TABLE = """
set bob 1 4096                  | 0  bob
set bob 2 16384                 | 0  bob
set bob 1 4095                  | 93 Too few iterations
set bob 1 16385                 | 93 Too many iterations
set bob 0 4096                  | 33 Unknown SCRAM mechanism
set bob 3 4096                  | 33 Unknown SCRAM mechanism
set - 1 4096                    | 93 Username must not be empty
remove alice 1                  | 0  alice
remove alice 2                  | 91 Attempt to delete a user credential that does not exist
remove bob 1                    | 91 Attempt to delete a user credential that does not exist
remove bob 9                    | 33 Unknown SCRAM mechanism
remove - 1                      | 93 Username must not be empty
remove alice 1 ; remove alice 1 | 92 A user credential cannot be altered twice in the same request
remove alice 1 ; set alice 2 4096 | 92 A user credential cannot be altered twice in the same request
set bob 1 4096 ; set bob 2 4096 | 92 A user credential cannot be altered twice in the same request
remove bob 1 ; set bob 1 4096   | 91 Attempt to delete a user credential that does not exist
"""


def decided(text: str) -> Decision:
    """Returns the decision if alice already has a credential."""
    removals, upserts = [], []
    for change in text.split(";"):
        kind, user, mechanism, *iterations = change.split()
        name = "" if user == "-" else user
        if kind == "remove":
            removals.append(ScramChange(name, int(mechanism)))
        else:
            credential = ScramCredential(int(iterations[0]), b"salt", b"stored", b"server")
            upserts.append(ScramChange(name, int(mechanism), credential))
    command = AlterUserScramCredentials(
        request_id=RequestId("r1"), at_ms=5, changes=(*removals, *upserts), principal="User:admin"
    )
    return decide(State(DictTopics(), Cluster(scram=KNOWN)), command)


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_scram_alterations_of_one_user_follow_kafkas_rules(line: str) -> None:
    changes, expected = (cell.strip() for cell in line.split("|"))
    code, _, message = expected.partition(" ")
    decision = decided(changes)
    (answer,) = decision.answers
    assert {(detail.code, detail.message) for detail in answer.details} == {
        (int(code), "" if code == "0" else message.strip())
    }
    assert len(answer.details) == changes.count(";") + 1, "one result per change, in request order"
    assert len(decision.events) == (1 if code == "0" else 0)


def test_an_invalid_scram_alteration_does_not_affect_other_users() -> None:
    decision = decided("remove alice 1 ; set bob 1 4096 ; set bob 2 4096 ; set carol 2 5000")
    assert [detail.code for detail in decision.answers[0].details] == [0, 92, 92, 0]
    assert [(type(event).__name__, event.user) for event in decision.events] == [  # type: ignore[union-attr]
        ("ScramCredentialRemoved", "alice"),
        ("ScramCredentialSet", "carol"),
    ]


def test_scram_events_change_the_state() -> None:
    state = State(DictTopics(), Cluster(scram=KNOWN))
    cause = Cause("AlterUserScramCredentials", RequestId("r1"))
    for offset, event in enumerate(decided("remove alice 1 ; set carol 2 5000").events):
        assert apply(state, Recorded(Offset(offset), 5, cause, event)) == "", "the event belongs to no shard"
    assert dict(state.cluster.scram) == {
        ("carol", "SCRAM-SHA-512"): ScramCredential(5000, b"salt", b"stored", b"server")
    }
    assert KNOWN, "the previous map is unchanged"


def test_removing_a_missing_scram_credential_cannot_be_applied() -> None:
    event = ScramCredentialRemoved(RequestId("r1"), "nobody", "SCRAM-SHA-256", "User:admin", None)
    with pytest.raises(CannotApply, match="user 'nobody' has no credential for SCRAM-SHA-256"):
        apply(State(DictTopics()), Recorded(Offset(0), 5, Cause("x", RequestId("r1")), event))


def test_scram_secrets_are_not_in_repr() -> None:
    (event,) = decided("set bob 1 4096").events
    change = ScramChange("bob", 1, ScramCredential(4096, b"PLANTED", b"PLANTED", b"PLANTED"))
    assert "PLANTED" not in repr(change)
    assert "stored" not in repr(event)


def _draw_login_secret(state: State, secret: bytes) -> tuple[Event, ...]:
    return decide(state, DrawLoginSecret(request_id=RequestId("r1"), at_ms=5, secret=secret)).events


def test_the_first_login_secret_is_used() -> None:
    state = State(DictTopics(), Cluster())
    (event,) = _draw_login_secret(state, b"PLANTED")
    record = Recorded(Offset(0), 5, Cause("DrawLoginSecret", RequestId("r1")), event)
    apply(state, record)
    assert state.cluster.login_secret == b"PLANTED"
    assert _draw_login_secret(state, b"another") == ()
    with pytest.raises(CannotApply, match="a login secret exists already"):
        apply(state, record)
    shown = without_secrets(event)
    assert "PLANTED" not in repr(event) + repr(DrawLoginSecret(request_id=RequestId("r"), at_ms=5, secret=b"PLANTED"))
    assert isinstance(shown, LoginSecretDrawn)
    assert shown.secret == b"(hidden)"
