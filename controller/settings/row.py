"""What a setting is: the row of the tables of settings."""

from __future__ import annotations

import msgspec

from controller.machine.configs.values import Allowed, ConfigType, allowed_text


class Setting(msgspec.Struct, frozen=True):
    """One setting. `default` is its text, None when it has no value until it is given.

    `form` says what is allowed where the type and limits do not. `decides` marks a setting that decisions depend on:
    it is recorded in the log. A `secret` one is never shown, nor given to policies.
    """

    key: str
    kind: ConfigType
    default: str | None
    documentation: str
    allowed: Allowed = None
    form: str = ""
    decides: bool = False
    secret: bool = False

    @property
    def field(self) -> str:
        """The attribute of ServeSettings that holds the value."""
        return self.key.replace(".", "_")

    @property
    def allowed_text(self) -> str:
        """What is allowed, in words."""
        return self.form or allowed_text(self.kind, self.allowed)
