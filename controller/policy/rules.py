"""A ready-made create-topic policy whose rules are in a file.

    create.topic.policy.class.name=controller.policy.rules.TopicRules
    topic.rules.file=topic-rules.toml
    topic.rules.mode=enforce

docs/policies.md describes the file, with an example. The file is read once, at the start: one run has one set of rules.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from controller.policy.in_force import RuleInForce
from controller.policy.interface import CreateTopicPolicy, PolicyViolation, RequestMetadata
from controller.policy.rule import Rule
from controller.policy.rules_file import MODES, RulesError, read_rules
from events.catalog import Observation

FILE_SETTING = "topic.rules.file"
MODE_SETTING = "topic.rules.mode"


class TopicRules(CreateTopicPolicy):
    """Refuses a topic that breaks an enforced rule, naming every enforced rule that it breaks and what is allowed.

    A rule is enforced unless its own `mode` is `observe`, or the setting `topic.rules.mode` is, which holds for all of
    the file. What breaks a rule that is only observed is recorded as an observation. In the log, rules are called
    `policy:rules/<name>`; a refusal has the name of the first broken rule.
    """

    def __init__(self) -> None:
        self._rules: tuple[Rule, ...] = ()
        self._enforcing = True

    def configure(self, settings: Mapping[str, str]) -> None:
        """Read the file that `topic.rules.file` names, relative to the working folder. Raises RulesError."""
        path = settings.get(FILE_SETTING, "").strip()
        if not path:
            raise RulesError("is not set", "the path of a TOML file of rules", key=FILE_SETTING)
        mode = settings.get(MODE_SETTING, "").strip() or "enforce"
        if mode not in MODES:
            raise RulesError("is not a mode", " or ".join(MODES), key=MODE_SETTING, value=f"'{mode}'")
        self._enforcing = mode == "enforce"
        self._rules = read_rules(Path(path))

    @property
    def in_force(self) -> tuple[RuleInForce, ...]:
        """The rules, for people to look at."""
        return tuple(RuleInForce(one.name, one.enforced and self._enforcing, one.written) for one in self._rules)

    def validate(self, request: RequestMetadata) -> Sequence[Observation] | None:
        """Judge one topic by every rule. Raises PolicyViolation; returns what was only observed."""
        refusals: list[Observation] = []
        observed: list[Observation] = []
        for rule in self._rules:
            message = rule.refusal(request)
            if message is not None:
                broken = refusals if rule.enforced and self._enforcing else observed
                broken.append(Observation(f"rules/{rule.name}", message))
        if refusals:
            message = "; ".join(refusal.message for refusal in refusals)
            raise PolicyViolation(message, rule=refusals[0].rule, observed=observed)
        return observed or None
