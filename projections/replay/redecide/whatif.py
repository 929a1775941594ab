"""The hypothesis of a backtest: other settings or other policies for the recorded requests.

Settings and policies are validated before the backtest begins. `what_if` and `check` raise an error for settings that
no decision depends on, invalid values, and policies that cannot be loaded or configured. Each error says what is
allowed.
"""

from collections.abc import Iterable
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path

import msgspec
from msgspec.structs import replace

from controller.machine.configs.topic_configs import BROKER_CONFIGS, TOPIC_DEFAULTS, contradicting_defaults
from controller.machine.configs.values import Bad, Between, ConfigRow, ConfigType, allowed_text, value_text
from controller.machine.state import POLICY_HASH_PREFIX, POLICY_PREFIX, Cluster, RulesVersion
from controller.policy.chain import PolicyChain
from controller.policy.loading import ALTER_SETTING, checked_file, load_policies
from controller.policy.loading import SETTING as POLICY_SETTING
from events.codec import HIDDEN
from projections.replay.outcome import ReplayError
from projections.replay.redecide.recorded import Timeline

AUTO_CREATE = "auto.create.topics.enable"
FACTOR, PLACEHOLDERS = "default.replication.factor", "enable.under.replicated.topic.creation"
RULES_FILE = "topic.rules.file"

Pairs = tuple[tuple[str, str], ...]


class WhatIf(msgspec.Struct, frozen=True):
    """A hypothesis: `settings` override the recorded ones; `policies` and `rules` replace the recorded ones.

    `policies` has class names as in `create.topic.policy.class.name`. "" means no policy; None keeps the recorded
    verdicts. `rules` is the text of a file of rules; None keeps the recorded rules."""

    settings: Pairs = ()
    policies: str | None = None
    rules: str | None = None

    def over(self, recorded: Cluster) -> Cluster:
        """The cluster with the settings and rules of this hypothesis."""
        cluster = recorded.with_settings(self.pairs_over(recorded.settings_pairs))
        if self.rules is None:
            return cluster
        number = 0 if recorded.rules is None else recorded.rules.number
        return replace(cluster, rules=RulesVersion(number, self.rules, "", ""))

    def pairs_over(self, recorded: Pairs) -> Pairs:
        """The effective settings: `recorded`, with the overrides of this hypothesis."""
        decisive = {key: value for key, value in self.settings if not key.startswith(POLICY_PREFIX)}
        if self.policies is not None:
            decisive[POLICY_SETTING] = self.policies
        return tuple(sorted({**dict(recorded), **decisive}.items()))

    def summary(self) -> str:
        parts = [f"{key}={value}" for key, value in self.settings]
        if self.policies is not None:
            parts.insert(0, f"policy {self.policies}" if self.policies else "no policy")
        if self.rules is not None:
            parts.insert(0, "other rules")
        return ", ".join(parts)


def what_if(settings: Iterable[tuple[str, str]]) -> WhatIf:
    """The hypothesis of pairs of settings; no policy class means none. Raises ReplayError and RulesError."""
    checked = dict(_checked(key.strip(), value.strip()) for key, value in settings)
    if not checked:
        raise ReplayError("nothing to test: give --rules FILE, --policy CLASS or --set KEY=VALUE")
    policies, file = checked.pop(POLICY_SETTING, None), checked.pop(RULES_FILE, None)
    return WhatIf(tuple(sorted(checked.items())), policies, None if file is None else checked_file(Path(file)))


# Policies.


class Policies:
    """The policies of a hypothesis, or without one the recorded policies. Each set of effective settings gets its own
    instances, created at the first use."""

    def __init__(self, tried: WhatIf | None = None) -> None:
        self._tried = tried
        self._chains: dict[Pairs, PolicyChain] = {}

    def chain(self, pairs: Pairs) -> PolicyChain:
        """The policies under these settings. Raises PolicyLoadError."""
        chain = self._chains.get(pairs)
        if chain is None:
            recorded = (pair for pair in pairs if not pair[0].startswith(POLICY_HASH_PREFIX))
            known = {key: text for key, text in recorded if text != HIDDEN.decode()}
            names = (known.get(POLICY_SETTING, ""), known.get(ALTER_SETTING, ""))
            if self._tried is not None:
                known, names = known | dict(self._tried.settings), (self._tried.policies or "", "")
            chain = self._chains[pairs] = load_policies(names[0], known, names[1])
        return chain

    def close(self) -> tuple[str, ...]:
        """Close all policies; returns a line for each error that they raised."""
        return tuple(failure for chain in self._chains.values() for failure in chain.close())


def check(tried: WhatIf, timeline: Timeline) -> None:
    """Validate a hypothesis against all settings that the log ever had, and configure the policies with each. Raises
    ReplayError and PolicyLoadError."""
    with closing(Policies(tried)) as policies:
        for offset, recorded in timeline.settings_changes:
            pairs = tried.pairs_over(recorded.settings)
            conflict = contradicting_defaults(tuple(pair for pair in pairs if pair[0] in TOPIC_DEFAULTS))
            if conflict is not None:
                raise ReplayError(f"with the settings of offset {offset}: {conflict}")
            policies.chain(pairs)


def policy_modules(class_names: str) -> list[str]:
    """The top-level modules of the policies in a comma-separated list, which workers elsewhere need."""
    return sorted({name.strip().partition(".")[0] for name in class_names.split(",")} - _SHIPPED)


_SHIPPED = frozenset(("controller", "events", "projections", ""))
"""The packages that every worker already has."""

# Settings.

_OF_KAFKA = ("num.partitions", AUTO_CREATE, "delete.topic.enable", POLICY_SETTING)
_DECISIVE: dict[str, ConfigRow] = {
    **TOPIC_DEFAULTS,
    **{name: BROKER_CONFIGS[name] for name in _OF_KAFKA},
    FACTOR: ConfigRow(FACTOR, ConfigType.INT, None, Between(1, 32767)),
    PLACEHOLDERS: ConfigRow(PLACEHOLDERS, ConfigType.BOOLEAN, None, None),
}
"""The settings that decisions depend on."""


def _checked(key: str, value: str) -> tuple[str, str]:
    if key == RULES_FILE or key.startswith(POLICY_PREFIX):
        return key, value
    if key not in _DECISIVE:
        near = get_close_matches(key, _DECISIVE, n=1)
        hint = f"did you mean {near[0]}?" if near else "docs/backtest.md lists the settings that decisions depend on"
        raise ReplayError(f"--set {key}={value}: no decision depends on it: {hint}")
    row = _DECISIVE[key]
    read = row.read(value)
    if isinstance(read, Bad):
        raise ReplayError(f"--set {key}={value} is not allowed; allowed: {allowed_text(row.kind, row.allowed)}")
    return key, value if key in TOPIC_DEFAULTS else value_text(read)
