"""Random walks of the machine: settings and brokers, then commands in the language of `tables`.

A walk is text, so a failing one is readable and can be copied into a story. A seed determines the steps, and a length
how many of them run. Hypothesis draws both, and shortens a failing walk. `q#` is a request id unique to the step.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

from controller.machine.commands.commands import AnyCommand
from controller.machine.decide import decide
from controller.machine.recorded_command import recall
from events.catalog import Recorded
from events.codec import encode_event
from tests.machine.rig import Rig, fold
from tests.machine.tables import command, given

NAMES = ("a", "b", "a.b", "a_b", "c.d.e", "bad~name")
BROKERS = ("1@x 2@y 3@x", "1@x 2@y 3@z 4@x", "1 2 3", "1 2", "1@x 2@y 3! 4!", "1", "5@z!")
SETTINGS = (
    "fewer", "fewer minisr=2", "factor=2 count=2", "fewer unclean.leader.election.enable=true",
    "fewer policy", "keep",
)  # fmt: skip
CONFIGS = ("min.insync.replicas=2", "unclean.leader.election.enable=true", "cleanup.policy=compact", "retention.ms=x")
ALL = "reconcile " + " ".join(NAMES)

Chance = Callable[[Random], str]


class Walk(NamedTuple):
    given: str
    steps: tuple[str, ...]


def walks(steps_max: int = 80) -> st.SearchStrategy[Walk]:
    """Random walks; half of them run more than half of `steps_max`."""
    return st.builds(_walk, st.integers(0, 2**32 - 1), st.integers(0, steps_max).map(lambda n: steps_max - n))


def _walk(seed: int, length: int) -> Walk:
    chance = Random(seed)
    begin = f"{chance.choice(SETTINGS)} {chance.choice(BROKERS)}"
    return Walk(begin, tuple(chance.choices(STEPS, WEIGHTS)[0](chance) for _ in range(length)))


def _mostly(chance: Random, usual: Sequence[str], seldom: Sequence[str]) -> str:
    return chance.choice(seldom if chance.random() < 0.15 else usual)


def _name(chance: Random) -> str:
    return _mostly(chance, ("a", "b", "a.b"), NAMES)


def _broker(chance: Random) -> str:
    return _mostly(chance, ("1", "2", "3"), ("4", "5", "6"))


def _lists(chance: Random) -> list[str]:
    count = chance.randint(1, 3)
    return [_mostly(chance, ("1.2", "2.1"), ("2.3", "3.1", "1", "1.2.3", "2.2", "7")) for _ in range(count)]


def _create(chance: Random) -> str:
    shape = _mostly(chance, ("1x1", "2x2", "1x3", "3x3", "1x4", "2x3"), ("-1x-1", "0x1", "1x9", "hand"))
    if shape == "hand":
        shape = "on=" + ",".join(f"{index}:{one}" for index, one in enumerate(_lists(chance)))
    seldom = (
        "timeout=-1",
        "v=3",
        "v=0",
        "dry",
        "twice",
        "denied=29",
        "verdict=refused",
        "verdict=failed",
        "api=Metadata",
    )
    more = _mostly(chance, ("", "timeout=0", "verdict=allowed"), seldom)
    conf = _mostly(chance, ("",), [f"conf={pair}" for pair in CONFIGS])
    return f"create {_name(chance)} {shape} id=q# {more} {conf}"


def _partitions(chance: Random) -> str:
    on = _mostly(chance, ("",), ("on=" + ",".join(_lists(chance)),))
    more = _mostly(chance, ("",), ("dry", "twice", "denied=29"))
    return f"partitions {_name(chance)} to={chance.randint(1, 6)} id=q# {on} {more}"


def _delete(chance: Random) -> str:
    return f"delete {_name(chance)} id=q# {_mostly(chance, ('', 'topic-id=same'), ('topic-id=other', 'denied=29'))}"


def _alter(chance: Random) -> str:
    ops = [f"set:{pair}" for pair in CONFIGS] + ["delete:cleanup.policy", "append:cleanup.policy=delete"]
    more = _mostly(chance, ("",), ("dry", "denied=29"))
    return f"{chance.choice(('alter', 'replace'))} {_name(chance)} {chance.choice(ops)} id=q# {more}"


def _life(chance: Random) -> str:
    match chance.choice(("register", "fence", "fence", "unfence", "unfence", "unfence", "unregister")):
        case "register":
            life = chance.choice(("first", "first", "new"))
            return f"register {_broker(chance)} rack={chance.choice('xyz')} as={life}"
        case verb:
            return f"{verb} {_broker(chance)}"


def _confirm(chance: Random) -> str:
    upto = _mostly(chance, ("",), (f"upto={chance.randint(0, 60)}",))
    return f"confirm {_mostly(chance, ('1 2 3 4 5 6', '1 2 3'), ('1', '2', '3', '4 5'))} {upto}"


def _report(chance: Random) -> str:
    name = _name(chance)
    return chance.choice((f"sync {name}", f"sync {name}", f"sync {name} alone", f"isr {name} by=1 0:1.2:0:1 1:2:1:1"))


def _time(chance: Random) -> str:
    expire = f"expire {_name(chance)} id=q{chance.randint(0, 60)} at={chance.choice((0, 5000))}"
    some = "reconcile " + " ".join(_name(chance) for _ in range(chance.randint(0, 4)))
    setting = chance.choice(("min.insync.replicas=2", "num.partitions=3", ""))
    return chance.choice((ALL, ALL, some, expire, expire, expire, f"settings fewer {setting}"))


STEPS: tuple[Chance, ...] = (_create, _partitions, _delete, _alter, _life, _confirm, _report, _time)
WEIGHTS = (9, 4, 2, 3, 7, 4, 4, 5)


def steps(walk: Walk) -> Iterator[tuple[Rig, AnyCommand]]:
    """Yields each command of a walk before it is decided. The last one reconciles every topic."""
    rig = given(walk.given)
    for number, text in enumerate((*walk.steps, ALL)):
        request = command(rig, text.replace("q#", f"q{number}"))
        yield rig, request
        rig.put(request)


def walked(walk: Walk) -> Rig:
    """Returns the rig at the end of a walk."""
    rig = Rig()
    for step in steps(walk):
        rig = step[0]
    return rig


def decisions(records: Sequence[Recorded]) -> Iterator[list[Recorded]]:
    """Groups a log by decision: consecutive records with the same cause, time and topic."""
    for _, group in groupby(records, lambda one: (one.cause, one.at_ms, getattr(one.event, "topic", None))):
        yield list(group)


def check_repeatable(log: list[Recorded]) -> None:
    """Every request is reconstructed from its events, and the new decision equals the recorded one."""
    state = fold(())
    for group in decisions(log):
        request = recall(group)
        if request is not None:
            again = decide(state, request)
            before = [encode_event(r.at_ms, r.cause, r.event) for r in group]
            after = [encode_event(r.at_ms, r.cause, e) for r, e in zip(group, again.events, strict=True)]
            assert after == before, f"{request} is decided differently"
        fold(group, state)
