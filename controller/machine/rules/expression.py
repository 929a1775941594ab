"""Conditions in rules for topic changes, in the Common Expression Language (https://cel.dev). `Rule` evaluates them.

CEL has no loops, and reads no clock and no file. So an expression on the same change always gives the same result. Only
macros could take long. Therefore an expression may have at most CHARS_MAX characters and one macro, and with a macro no
long lists. `matches` uses RE2 and caches patterns: the CEL library would compile a pattern each time, for up to half a
second. Unknown variables and functions are refused when the rules are read.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from controller.patterns import SMALL, Pattern, PatternError
from events.errors import shortened

CHARS_MAX: Final = 1000
COMMAS_WITH_MACRO_MAX: Final = 10
"""Limits the lists: `[0, 0, …].map(x, config)` takes time in proportion to the square of the number of items."""
MATCHED_CHARS_MAX: Final = 500
VARIABLES: Final = (
    *("name", "change", "principal", "client_id", "host", "before", "after"),
    *("partitions", "replication_factor", "min_insync_replicas", "configs", "config", "label"),
)
_METHODS: Final = ("contains", "startsWith", "endsWith")
_CONVERSIONS: Final = ("int", "double", "string", "bool", "timestamp", "duration")
FUNCTIONS: Final = ("size", *_METHODS, "matches", *_CONVERSIONS)
_CALL = re.compile(r"(\.?)\s*\b(\w+)\s*\(")
_STRING = re.compile(r"""[rR]("{3}|'{3}|["']).*?\1|("{3}|'{3}|["'])(?:\\.|[^\\])*?\2""", re.DOTALL)
_CONFIG = re.compile(r"""\bconfig\[['"]([a-z.]+)['"]\]""")
_CONFIG_WORD = re.compile(r"\bconfig\b")
_ANY_CONFIG: Final = frozenset(("before", "after", "configs", "label"))
_OF_TOPIC: Final = frozenset(VARIABLES) - {"change", "principal", "client_id", "host", "before"}
_OF_FACTS: Final = _OF_TOPIC - {"name", "after"}
_MACRO = re.compile(r"\.\s*(?:all|exists|exists_one|existsOne|map|filter)\s*\(")
_ALL = r"(?:(?:before|after)\s*\.\s*)?(?:configs?|label)|before|after"
_WHOLE = re.compile(rf"(?<!in )(?<!size\()(?<![!=]= )(?<![\w.])({_ALL})\b(?!\s*(?:[.\[]|[!=]=))")
"""Copying all configs takes 25 µs, and in a list each time that the list grows."""
_MATCHES: Final = "re2_matches"
"""The name under which the CEL library knows our `matches`; the library's own `matches` cannot be replaced."""
_SLOW = re.compile(rf"\bmatches\s*\(|{_MACRO.pattern}")
_MATCHES_CALL = re.compile(r"\.\s*matches\s*\(")
_ERROR_CHARS_MAX = 200
T = TypeVar("T")


class ExpressionError(ValueError):
    """A text is not a valid expression; the message has the reason."""


class ExpressionFailed(Exception):
    """An expression failed on a change, for example by a division by zero."""


class Variables(Generic[T]):
    """The values of an expression's variables for one subject. The maker of a name computes its value when it is first
    needed."""

    def __init__(self, makers: Mapping[str, Callable[[T], object]], subject: T) -> None:
        self._makers = makers
        self._subject = subject
        self._context: Any = None

    def context(self, names: Sequence[str]) -> object:
        """A CEL context that has at least the variables `names`."""
        import cel

        if self._context is None:
            self._context, self._known = cel.Context(), set[str]()
            for function in ("matches", _MATCHES):  # as matches(text, pattern) and text.matches(pattern)
                self._context.add_function(function, _matches)
        for name in names:
            if name not in self._known:
                self._known.add(name)
                self._context.add_variable(name, self._makers[name](self._subject))
        return self._context


class Expression:
    """A compiled CEL expression. The constructor raises ExpressionError."""

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self._program, self.names = _compiled(text)
        literals = _CONFIG.findall(text)
        reads_others = len(literals) != len(_CONFIG_WORD.findall(text)) or _ANY_CONFIG.intersection(self.names)
        self.configs: Final = None if reads_others else frozenset(literals)
        """The configs that the expression names; None if it may read any."""
        self.slow_calls: Final = len(_SLOW.findall(_STRING.sub("''", text)))
        """The number of macros and of calls of `matches`."""
        self.is_of_facts: Final = _OF_FACTS.issuperset(self.names)
        """True if the value depends only on the counts and configs of the topic after the change."""
        self.is_of_topic: Final = _OF_TOPIC.issuperset(self.names)
        """True if the value depends only on the topic, not on the requester, the kind of change or the old topic."""

    def value(self, variables: Variables[Any]) -> object:
        """Returns the value of the expression. Raises ExpressionFailed."""
        try:
            return self._program.execute(variables.context(self.names))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of the CEL library is not a subclass of Exception
            raise ExpressionFailed(_short(error)) from None

    def is_true(self, variables: Variables[Any]) -> bool:
        """True if the value is true. Raises ExpressionFailed, also for a value that is neither true nor false."""
        value = self.value(variables)
        if not isinstance(value, bool):
            raise ExpressionFailed(f"it is {type(value).__name__}, not true or false")
        return value


class Message:
    """A message whose fields in braces are expressions. The constructor raises ExpressionError."""

    def __init__(self, text: str) -> None:
        parts = re.split(r"\{([^{}]*)\}", text)
        self._texts: Final = parts[::2]
        self.fields: Final = [Expression(part) for part in parts[1::2]]

    def text(self, variables: Variables[Any]) -> str:
        """The message for a change; a field whose expression fails appears as its text in braces."""
        values = [self._value(field, variables) for field in self.fields]
        return "".join(part for pair in zip(self._texts, [*values, ""], strict=True) for part in pair)

    def _value(self, field: Expression, variables: Variables[Any]) -> str:
        try:
            return str(field.value(variables))[:_ERROR_CHARS_MAX]
        except ExpressionFailed:
            return f"{{{field.text}}}"


@lru_cache(maxsize=1000)
def _compiled(text: str) -> tuple[Any, tuple[str, ...]]:
    if len(text) > CHARS_MAX:
        raise ExpressionError(f"has {len(text)} characters, allowed are {CHARS_MAX}")
    if "//" in text and "\n" in text:
        raise ExpressionError("has // and several lines, allowed is one of them: write a comment in TOML, with #")
    macros = len(_MACRO.findall(text))
    if macros > 1:
        raise ExpressionError(f"has {macros} macros (all, exists, map, filter), allowed is one")
    if macros and text.count(",") > COMMAS_WITH_MACRO_MAX:
        raise ExpressionError(f"has a macro and {text.count(',')} commas, allowed are {COMMAS_WITH_MACRO_MAX}")
    if macros and _MATCHES_CALL.search(text):
        raise ExpressionError("has a macro and matches, allowed is one of them")
    code = _STRING.sub("''", text)
    if whole := _WHOLE.search(code):
        raise ExpressionError(f"copies all of {whole[1]}; allowed: one of its values, KEY in, size, macros, == and !=")
    program = _program(text)
    bound = set(re.findall(_MACRO.pattern + r"\s*(\w+)\s*,", text))
    names = tuple(name for name in program.variables() if name in VARIABLES or name not in bound)
    functions = tuple("matches" if name == _MATCHES else name for name in program.functions())
    for what, used, allowed in (("variable", names, VARIABLES), ("function", functions, FUNCTIONS)):
        unknown = [each for each in used if each not in allowed and (what == "variable" or each.isidentifier())]
        if unknown:
            raise ExpressionError(f"unknown {what} '{unknown[0]}'; allowed: {', '.join(allowed)}")
    for dot, name in _CALL.findall(code):
        if name in (_CONVERSIONS if dot else _METHODS):
            allowed_call = f"{name}(value)" if dot else f"text.{name}(part)"
            raise ExpressionError(f"invalid call of {name}; allowed: {allowed_call}")
    return program, names


def _program(text: str) -> Any:
    import cel  # takes half a second, so it is imported only for rules with expressions

    logging.getLogger("cel").disabled = True  # it would log a warning for each exception of a function
    try:
        return cel.compile(_MATCHES_CALL.sub(f".{_MATCHES}(", text))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ExpressionError(_short(error)) from None


@lru_cache(maxsize=100)
def _pattern(text: str) -> Pattern:
    return Pattern(text, SMALL)


def _matches(text: str, pattern: str) -> bool:
    """True if a regular expression in RE2's syntax is found in a text. Raises PatternError."""
    if len(text) > MATCHED_CHARS_MAX:
        raise PatternError(f"matches got a text of {len(text)} characters, allowed are {MATCHED_CHARS_MAX}")
    return _pattern(pattern).is_found_in(text)


def _short(error: BaseException) -> str:
    return shortened(" ".join(str(error).split()), _ERROR_CHARS_MAX)
