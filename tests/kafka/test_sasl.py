"""SCRAM: the examples of the RFCs, an independent client, and invalid client messages."""

import base64
import re

import pytest

from controller.kafka.sasl import DIGESTS, AuthenticationFailed, start_scram
from controller.machine.state import ScramCredential
from tests.kafka.sasl_users import MemoryUsers, ScramClient, credential_of

mechanisms = pytest.mark.parametrize("mechanism", list(DIGESTS))


class OneUser(MemoryUsers):
    """One credential for every user name."""

    def __init__(self, credential: ScramCredential) -> None:
        super().__init__({})
        self._credential = credential

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        return self._credential


async def test_scram_matches_the_rfc_7677_example() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    users = OneUser(credential_of("SCRAM-SHA-256", "pencil", salt, 4096))
    server = start_scram(users, "SCRAM-SHA-256", nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = await server(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first.challenge == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = await server(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final.challenge == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert final.user == "user"


USERS = ["alice", "a,b=c", "=2C", "ünïcødé", "with space", "n=x,r=y"]


@mechanisms
@pytest.mark.parametrize("user", USERS)
async def test_scram_accepts_any_user_name_and_password(mechanism: str, user: str) -> None:
    password = f"p,=ü {user}"
    server, client = start_scram(MemoryUsers({user: password}), mechanism), ScramClient(mechanism, user, password)
    step = await server(client.first())
    assert step.user is None, "no user before the proof"
    step = await server(client.final(step.challenge))
    assert step.user == user
    assert client.trusts(step.challenge)


FIRSTS = """
p=tls-unique,,n=alice,r=x       | malformed            | channel binding is not spoken
n,a=bob,n=alice,r=x             | authorization id     | somebody else's rights
n,,n=alice                      | malformed            | no nonce
n,,n=al=ice,r=x                 | malformed user name  | an equals sign must be written =3D
n,,m=must,n=alice,r=x           | malformed            | extensions that must be understood
n,,n=alice,r=x,tokenauth=true   | delegation tokens    | not spoken
                                | malformed            | nothing at all
"""


@pytest.mark.parametrize("line", FIRSTS.strip("\n").splitlines())
async def test_invalid_scram_client_first_message_is_rejected(line: str) -> None:
    said, why, _ = (cell.strip() for cell in line.split("|"))
    server = start_scram(MemoryUsers({"alice": "secret"}), "SCRAM-SHA-256")
    with pytest.raises(AuthenticationFailed, match=why):
        await server(said.encode())


FINALS = [
    (lambda said: said.replace(b"r=client", b"r=xlient"), "nonce"),
    (lambda said: said.replace(b"c=biws", b"c=eSws"), "channel binding"),
    (lambda said: re.sub(rb"p=.*", b"p=AAAA", said), "the wrong length"),
    (lambda said: re.sub(rb"p=.*", b"p=" + base64.b64encode(bytes(32)), said), "wrong user name or password"),
    (lambda said: re.sub(rb"p=.*", b"p=%%%", said), "invalid base64"),
    (lambda said: re.sub(rb"p=.*", "p=\xe9".encode(), said), "with invalid base64"),
    (lambda said: said.replace(b"c=biws", "c=\xe9".encode()), "message with invalid base64"),
    (lambda said: re.sub(rb",p=.*", b"", said), "malformed final"),
    (lambda said: b"\xff\xfe", "not UTF-8"),
    (lambda said: said + b"x" * 5000, "bytes; 4096 are allowed"),
]


@pytest.mark.parametrize(("change", "why"), FINALS, ids=[why for _, why in FINALS])
async def test_invalid_scram_client_final_message_is_rejected(change: object, why: str) -> None:
    users = MemoryUsers({"alice": "secret"})
    server, client = start_scram(users, "SCRAM-SHA-256"), ScramClient("SCRAM-SHA-256", "alice", "secret")
    said = client.final((await server(client.first())).challenge)
    with pytest.raises(AuthenticationFailed, match=why) as raised:
        await server(change(said))  # type: ignore[operator]
    assert "secret" not in str(raised.value)
