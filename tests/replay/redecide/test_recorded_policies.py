"""`redecide --policies` runs recorded policies again if their source is the recorded one, and else says so."""

import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from textwrap import dedent

import pytest
from msgspec.structs import replace

from controller.machine.commands.commands import AlterTopicConfigs, CreateTopic
from controller.policy.chain import request_of
from controller.policy.loading import load_policies
from controller.settings.load import load_settings
from projections.replay.log.log_ref import LogRef
from projections.replay.outcome import Options, Outcome
from projections.replay.redecide.redecide import OTHER_VERDICT, run_redecide
from projections.replay.runner import InProcess
from tests.machine.rig import Rig
from tests.machine.tables import command
from tests.replay.written import written

SOURCE = dedent("""
    from pathlib import Path
    from controller.policy import Observation, PolicyViolation

    class Team:
        def configure(self, settings):
            self.team = settings["policy.team"]
            if "policy.sha256.acme_team.Team" in settings:
                raise ValueError("the hash is no setting")
        def validate(self, request):
            if not request.topic.startswith(self.team) or Path("refusing").exists():
                raise PolicyViolation(f"not of {self.team}", rule="team")
            return [Observation("wide", "5")] if request.num_partitions == 5 else None

    class Short:
        def validate(self, request):
            with Path("judged").open("a") as file:
                file.write(f"{request.name} {dict(request.configs)}\\n")
            if request.configs.get("retention.ms") == "9" or Path("refusing").exists():
                raise PolicyViolation("too long")
""")
HASH = sha256(SOURCE.encode()).hexdigest()
CREATE, ALTER = "create.topic.policy.class.name", "alter.config.policy.class.name"
STEPS = (
    "create pay.a 1x1",
    "create pay.b 5x1",
    "create a 1x1",
    "create pay.c 1x3",
    "alter pay.a set:retention.ms=5",
    "alter pay.a set:retention.ms=9",
)
Write = Callable[..., LogRef]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a log of STEPS, which the policies in the working folder judge as in a service."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    Path("acme_team.py").write_text(SOURCE)

    def write(*more: str) -> LogRef:
        loaded = load_settings(overrides=[f"{CREATE}=acme_team.Team", f"{ALTER}=acme_team.Short", *more])
        rig, chain = Rig(), load_policies("acme_team.Team", dict(loaded.texts), "acme_team.Short")
        rig.settings(loaded.decision_settings())
        rig.register(1)
        rig.unfence(1)
        for step in STEPS:
            request = command(rig, step)
            assert isinstance(request, CreateTopic | AlterTopicConfigs)
            if "1x3" not in step:  # is refused before the policies
                request = replace(request, verdict=chain.validate(request_of(request, rig.state)))
            rig.put(request)
        Path("judged").unlink()
        return written(tmp_path / "log", rig.log)

    yield write
    sys.modules.pop("acme_team", None)


def redecided(log: LogRef) -> Outcome:
    return run_redecide(InProcess(), log, Options(recorded_policies=True))


def test_recorded_policies_judge_again_under_the_recorded_settings(log: Write) -> None:
    outcome = redecided(log("policy.team=pay"))
    assert outcome.lines[1:] == [
        f"policy acme_team.{name}: judges again; its source is the recorded one (settings of offset 0)"
        for name in ("Team", "Short")
    ]
    assert "6 requests" in outcome.lines[0]
    assert not outcome.found
    assert Path("judged").read_text() == "pay.a {'retention.ms': '5'}\npay.a {'retention.ms': '9'}\n"


def test_another_verdict_of_a_recorded_policy_is_a_difference(log: Write) -> None:
    ref = log("policy.team=pay")
    Path("refusing").touch()
    rows = redecided(ref).rows
    found = [(row["topic"], row["why"]) for row in rows]
    assert found == [(topic, OTHER_VERDICT) for topic in ("pay.a", "pay.b", "pay.a")], "others are refused as they were"
    assert "not of pay" in rows[0]["now"]
    assert not run_redecide(InProcess(), ref, Options()).found


def test_policies_with_another_source_are_named_with_both_hashes(log: Write) -> None:
    ref = log("policy.team=pay")
    Path("refusing").touch()
    del sys.modules["acme_team"]
    changed = SOURCE + "# changed\n"
    Path("acme_team.py").write_text(changed)
    outcome = redecided(ref)
    now = sha256(changed.encode()).hexdigest()
    told = (
        f"the sha256 of its source is {now}, recorded is {HASH}; the recorded verdicts are used (settings of offset 0)"
    )
    assert outcome.lines[1:] == [f"policy acme_team.{name}: {told}" for name in ("Team", "Short")]
    assert (outcome.found, outcome.about["policies"]) == (False, outcome.lines[1:])
    assert not Path("judged").exists()


@pytest.mark.parametrize("missing", [True, False])
def test_policies_without_a_source_do_not_judge_again(log: Write, missing: bool) -> None:
    ref = log("policy.team=pay")
    del sys.modules["acme_team"]
    Path("acme_team.py").unlink()
    if not missing:
        Path("acme_team.py").write_bytes(b"\xff")
    outcome = redecided(ref)
    assert outcome.lines[1].startswith(
        f"policy acme_team.Team: the sha256 of its source is unknown, recorded is {HASH}; the recorded verdicts"
    )
    assert not outcome.found


def test_secrets_of_policies_are_hidden_and_then_policies_do_not_judge_again(log: Write) -> None:
    given = ["policy.team=pay", "policy.api.key=k1", "policy.db=pg://ann:k2@db/x", "policy.empty.token="]
    recorded = dict(load_settings(overrides=[f"{CREATE}=acme_team.Team", *given]).decision_settings())
    assert {key: text for key, text in recorded.items() if key.startswith("policy.")} == {
        "policy.team": "pay",
        "policy.api.key": "(hidden)",
        "policy.db": "(hidden)",
        "policy.empty.token": "",
        "policy.sha256.acme_team.Team": HASH,
    }
    outcome = redecided(log(*given))
    told = "the log hides policy.api.key, policy.db; the recorded verdicts are used (settings of offset 0)"
    assert outcome.lines[1:] == [f"policy acme_team.{name}: {told}" for name in ("Team", "Short")]
    assert not Path("judged").exists()


def test_settings_of_policies_are_recorded_only_with_policies() -> None:
    assert load_settings(overrides=["policy.team=pay"]).decision_settings() == load_settings().decision_settings()


def test_a_policy_that_cannot_be_configured_does_not_judge_again(log: Write) -> None:
    Path("acme_team.py").write_text(SOURCE.replace('"policy.team"', '"log.level"'))
    outcome = redecided(log())
    assert "acme_team.Team" in outcome.lines[1]
    assert "configure raised KeyError: 'log.level'; the recorded verdicts are used" in outcome.lines[1]
    assert not outcome.found
