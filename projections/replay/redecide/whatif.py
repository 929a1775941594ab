"""What is to be tried on the past: other settings, other policies.

Both are checked before any work begins: a setting that decisions do not depend on, a value that is not allowed, a
policy that cannot be loaded or configured are refused, each with what would be right.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import zipfile
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from tempfile import mkdtemp

import msgspec
from pyspark.sql import SparkSession

from controller.machine.configs import values
from controller.machine.configs.table import BROKER_SYNONYMS
from controller.machine.configs.topic_configs import TIERED_STORAGE_KEY, contradicting_defaults
from controller.policy.chain import PolicyChain
from controller.policy.loading import SETTING as POLICY_SETTING
from controller.policy.loading import load_policies
from events.catalog import SettingsChanged
from projections.replay.errors import ReplayError
from projections.replay.redecide.recorded import Timeline
from projections.replay.spark.connect import is_connect

AUTO_CREATE = "auto.create.topics.enable"
RULES_FILE = "topic.rules.file"
POLICY_PREFIXES = ("policy.", "topic.rules.")
"""Settings that are for policies alone."""

Pairs = tuple[tuple[str, str], ...]


class BadChange(ReplayError):
    """A setting that cannot be tried; the message says what is allowed."""


class WhatIf(msgspec.Struct, frozen=True):
    """What is to be tried: `settings` over the recorded ones, and `policies`, class names as in
    `create.topic.policy.class.name`; None leaves the recorded verdicts as they are, "" means no policy."""

    settings: Pairs = ()
    policies: str | None = None

    def pairs_over(self, recorded: Pairs) -> Pairs:
        """The settings to decide by where these are recorded."""
        decisive = {key: value for key, value in self.settings if not key.startswith(POLICY_PREFIXES)}
        if self.policies is not None:
            decisive[POLICY_SETTING] = self.policies
        return tuple(sorted({**dict(recorded), **decisive}.items()))

    def in_words(self) -> str:
        """What is tried, for people."""
        said = [f"{key}={value}" for key, value in self.settings]
        if self.policies is not None:
            said.insert(0, f"policy {self.policies}" if self.policies else "no policy")
        return ", ".join(said)


def what_if(policies: Sequence[str], settings: Iterable[tuple[str, str]]) -> WhatIf:
    """What the `--policy`s and the `--set KEY=VALUE`s name, checked; the policy "" means none. Raises BadChange."""
    checked = dict(_checked(key.strip(), value.strip()) for key, value in settings)
    named = checked.pop(POLICY_SETTING, None)
    listed = ",".join(one for one in policies if one) if policies else None
    if listed is not None and named is not None and listed != named:
        raise BadChange(f"--policy {listed} and --set {POLICY_SETTING}={named} name different policies")
    tried = WhatIf(tuple(sorted(checked.items())), named if listed is None else listed)
    if not checked and tried.policies is None:
        raise BadChange("there is nothing to try: say --policy CLASS, --set KEY=VALUE, or both")
    return tried


# Policies.


class Policies:
    """The policies that are tried, made and configured for each settings in force when first needed."""

    def __init__(self, tried: WhatIf) -> None:
        self._tried = tried
        self._chains: dict[Pairs, PolicyChain] = {}

    def chain(self, pairs: Pairs) -> PolicyChain:
        """The policies under these settings. Raises PolicyLoadError."""
        chain = self._chains.get(pairs)
        if chain is None:
            settings = {**dict(pairs), **dict(self._tried.settings)}
            chain = self._chains[pairs] = load_policies(self._tried.policies or "", settings)
        return chain

    def close(self) -> tuple[str, ...]:
        """Close all that were made; what they raised, a line each."""
        return tuple(failure for chain in self._chains.values() for failure in chain.close())


def check(tried: WhatIf, timeline: Timeline) -> None:
    """See that what is to be tried goes with every settings that the log has had, policies made and configured
    included. Raises BadChange and PolicyLoadError."""
    policies = Policies(tried)
    try:
        for record in timeline.settings_changes:
            assert isinstance(record.event, SettingsChanged), "a settings change holds settings"
            pairs = tried.pairs_over(record.event.settings)
            conflict = contradicting_defaults(tuple(pair for pair in pairs if pair[0] in _DEFAULTS))
            if conflict is not None:
                raise BadChange(f"with the settings of offset {record.offset}: {conflict}")
            policies.chain(pairs)
    finally:
        policies.close()


def ship_policies(session: SparkSession, tried: WhatIf) -> None:
    """Give workers elsewhere the modules of loaded policies: each with the whole package that it is in.

    What is installed here has to be installed there too, as all else that this project's code needs.
    """
    if not tried.policies or _works_here(session):
        return
    folder = Path(mkdtemp(prefix="topicwright-policies-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors fetch it whenever they join
    for name in sorted({name.strip().partition(".")[0] for name in tried.policies.split(",")} - _SHIPPED):
        module = sys.modules[name]
        roots = [Path(path) for path in getattr(module, "__path__", ()) or [module.__file__ or ""]]
        if any("site-packages" in root.parts for root in roots):
            continue
        code = packed(roots, folder / f"{name}.zip")
        if is_connect(session):
            session.addArtifacts(str(code), pyfile=True)
        else:
            session.sparkContext.addPyFile(str(code))


def packed(roots: Iterable[Path], target: Path) -> Path:
    """A zip that Python can import these modules or packages from."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as code:
        for root in roots:
            for file in [root] if root.is_file() else sorted(root.rglob("*.py")):
                code.write(file, file.relative_to(root.parent))
    return target


def _works_here(session: SparkSession) -> bool:
    return not is_connect(session) and (session.conf.get("spark.master", "") or "").startswith(("local[", "local,"))


_SHIPPED = frozenset(("controller", "events", "projections"))
"""Packages that every worker has already."""

# Settings.

SETTINGS: dict[str, tuple[values.ConfigType, values.Allowed]] = {
    "num.partitions": (values.ConfigType.INT, values.AtLeast(1)),
    "default.replication.factor": (values.ConfigType.INT, values.Between(1, 32767)),
    AUTO_CREATE: (values.ConfigType.BOOLEAN, None),
    "delete.topic.enable": (values.ConfigType.BOOLEAN, None),
    "enable.under.replicated.topic.creation": (values.ConfigType.BOOLEAN, None),
    POLICY_SETTING: (values.ConfigType.STRING, None),
}
"""The settings that decisions depend on, beside the defaults of topic configs."""
_DEFAULTS: dict[str, tuple[values.ConfigType, values.Allowed]] = {
    **{name: (synonym.kind, synonym.allowed) for name, synonym in BROKER_SYNONYMS.items()},
    TIERED_STORAGE_KEY: (values.ConfigType.BOOLEAN, None),
}
_DECISIVE = {**_DEFAULTS, **SETTINGS}


def _checked(key: str, value: str) -> tuple[str, str]:
    if key == RULES_FILE:
        return key, os.path.abspath(value)  # workers are in other folders
    if key.startswith(POLICY_PREFIXES):
        return key, value
    if key not in _DECISIVE:
        near = get_close_matches(key, _DECISIVE, n=1)
        hint = f"did you mean {near[0]}?" if near else "docs/backtest.md has those that they depend on"
        raise BadChange(f"--set {key}={value}: no decision depends on it: {hint}")
    kind, allowed = _DECISIVE[key]
    read = values.read_value(key, kind, allowed, value)
    if isinstance(read, values.Bad):
        raise BadChange(f"--set {key}={value} is not allowed; allowed: {values.allowed_text(kind, allowed)}")
    return key, value if key in _DEFAULTS else values.value_text(read)
