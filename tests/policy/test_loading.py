"""Policies are found by name and configured once, or rejected with a message that explains the error and its fix."""

import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from textwrap import dedent

import pytest

from controller.policy.loading import PolicyLoadError, load_policies, source_hashes
from tests.policy.requests import request

Write = Callable[[str, str], None]

GOOD = """
    from controller.policy import CreateTopicPolicy, PolicyViolation

    CALLS = []

    class Named(CreateTopicPolicy):
        def configure(self, settings):
            CALLS.append(("configure", type(self).__name__, settings["word"]))
            self._word = settings["word"]
        def validate(self, request):
            if self._word not in request.topic:
                raise PolicyViolation(f"{request.topic} has no {self._word}")
        def close(self):
            CALLS.append(("close", type(self).__name__))

    class Second(Named):
        pass
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules into a temporary working folder; they are unloaded after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write_module(path: str, source: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(source))

    yield write_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    for name in list(sys.path_importer_cache):
        if name.startswith(str(tmp_path)):
            del sys.path_importer_cache[name]


def _refused(class_names: str, settings: dict[str, str] | None = None) -> PolicyLoadError:
    path = list(sys.path)
    with pytest.raises(PolicyLoadError) as raised:
        load_policies(class_names, settings or {"word": "x"})
    assert sys.path == path
    return raised.value


@pytest.mark.parametrize("class_names", ["", "  "])
def test_empty_class_names_load_an_empty_chain(class_names: str) -> None:
    assert load_policies(class_names, {}).names == ()


def test_a_policy_class_in_the_working_folder_is_loaded(write: Write) -> None:
    write("acme_policy.py", GOOD)
    path = list(sys.path)
    chain = load_policies("acme_policy.Named", {"word": "pay"})
    assert sys.path == path
    assert chain.names == ("acme_policy.Named",)
    assert chain.validate(request("pay.orders")).outcome == "allowed"
    assert chain.validate(request("orders")).message == "orders has no pay"
    chain.close()
    assert sys.modules["acme_policy"].CALLS == [("configure", "Named", "pay"), ("close", "Named")]


def test_a_policy_class_in_nested_packages_is_loaded(write: Write) -> None:
    write("acme_deep/__init__.py", "")
    write("acme_deep/rules/__init__.py", "")
    write("acme_deep/rules/naming.py", GOOD)
    assert load_policies("acme_deep.rules.naming.Named", {"word": "x"}).names == ("acme_deep.rules.naming.Named",)


def test_a_policy_class_on_pythonpath_is_loaded(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("elsewhere/acme_found.py", GOOD)
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    assert load_policies("acme_found.Named", {"word": "x"}).names == ("acme_found.Named",)


def test_the_working_folder_does_not_hide_installed_modules(write: Write) -> None:
    write("tomllib.py", GOOD)
    assert "has no 'Named'" in str(_refused("tomllib.Named"))


def test_a_policy_imports_sibling_modules_and_extends_sys_path(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    write("acme_neighbour.py", GOOD)
    source = "import sys\nsys.path.append('acme-own')\nfrom acme_neighbour import Named\nclass Mine(Named): pass\n"
    write("acme_imports.py", source)
    before = list(sys.path)
    load_policies("acme_imports.Mine", {"word": "x"})
    assert sys.path == [*before, "acme-own"]


def test_source_hashes_are_those_of_the_files_and_empty_without_source(write: Write) -> None:
    write("acme_hashed/rules/naming.py", GOOD)
    write("acme_raising/__init__.py", "raise SystemExit(1)")
    write("acme_raising/inner.py", GOOD)
    hashes = source_hashes(
        "acme_hashed.rules.naming.Named, acme_raising.inner.Named,time.Clock,acme_none.P,no_dot, ,acme_hashed.rules.P"
    )
    assert hashes == {
        "policy.sha256.acme_hashed.rules.naming.Named": sha256(dedent(GOOD).encode()).hexdigest(),
        **dict.fromkeys(
            (
                "policy.sha256.acme_raising.inner.Named",
                "policy.sha256.time.Clock",
                "policy.sha256.acme_none.P",
                "policy.sha256.no_dot",
                "policy.sha256.acme_hashed.rules.P",
            ),
            "",
        ),
    }
    assert "acme_hashed.rules.naming" not in sys.modules


def test_a_policy_class_with_only_validate_is_accepted(write: Write) -> None:
    write("acme_plain.py", "class Plain:\n    def validate(self, request): pass\n")
    chain = load_policies("acme_plain.Plain", {})
    assert chain.validate(request("a")).outcome == "allowed"
    assert chain.close() == ()


def test_a_failed_configure_closes_the_earlier_policies(write: Write) -> None:
    source = (
        GOOD + "    class Broken(Named):\n        def configure(self, settings):\n            raise OSError('no')\n"
    )
    write("acme_third.py", source)
    error = _refused(" acme_third.Named , acme_third.Second,acme_third.Broken ")
    assert "policy 'acme_third.Broken': configure raised OSError: no" in str(error)
    assert isinstance(error.__cause__, OSError)
    assert sys.modules["acme_third"].CALLS == [
        ("configure", "Named", "x"),
        ("configure", "Second", "x"),
        ("close", "Second"),
        ("close", "Named"),
    ]


def test_no_policy_is_configured_if_a_later_class_is_missing(write: Write) -> None:
    write("acme_early.py", GOOD)
    assert "has no 'Missing'" in str(_refused("acme_early.Named,acme_early.Missing"))
    assert sys.modules["acme_early"].CALLS == []


# One faulty policy a row: the body of module `acme_faulty`, and the error about acme_faulty.P.
FAULTY = [
    ("P = 5", "its constructor raised TypeError: 'int' object is not callable"),
    ("def P(): pass", "its 'validate' is of type NoneType, not a method"),
    ("Q = 5", "has no 'P'"),
    ("class P: pass", "its 'validate' is of type NoneType, not a method"),
    (
        "from controller.policy import CreateTopicPolicy\nclass P(CreateTopicPolicy): pass",
        "its constructor raised TypeError: Can't instantiate abstract class P",
    ),
    (
        "import abc\nclass P(abc.ABC):\n  def validate(self, r): pass\n  @abc.abstractmethod\n  def more(self): ...",
        "its constructor raised TypeError: Can't instantiate abstract class P",
    ),
    ("class P:\n  validate = 5", "its 'validate' is of type int, not a method"),
    ("class P:\n  validate = None", "its 'validate' is of type NoneType, not a method"),
    ("class P:\n  def validate(self): pass", "its 'validate()' cannot be called as validate(request)"),
    ("class P:\n  def validate(self, a, b): pass", "its 'validate(a, b)' cannot be called as validate(request)"),
    ("class P:\n  async def validate(self, request): pass", "its 'validate' is async or a generator"),
    ("class P:\n  def validate(self, request): yield", "its 'validate' is async or a generator"),
    (
        "class P:\n  def validate(self, request): pass\n  def configure(self): pass",
        "its 'configure()' cannot be called as configure(settings)",
    ),
    ("class P:\n  def validate(self, request): pass\n  configure = 1", "its 'configure' is of type int, not a method"),
    (
        "class P:\n  def validate(self, request): pass\n  def close(self, when): pass",
        "its 'close(when)' cannot be called as close()",
    ),
    ("class P:\n  def __init__(self, a): pass\n  def validate(self, request): pass", "constructor raised TypeError"),
    ("class P:\n  def __init__(self): raise SystemExit(2)\n  def validate(self, r): pass", "raised SystemExit: 2"),
    ("class P:\n  def validate(self, r): pass\n  def configure(self, s): s['no']", "configure raised KeyError: 'no'"),
    ("class P:\n  def validate(self, r): pass\n  def configure(self, s): s['a'] = 'b'", "configure raised TypeError"),
    ("import acme_not_there", "importing 'acme_faulty' raised ModuleNotFoundError: No module named 'acme_not_there'"),
    ("raise SystemExit(1)", "importing 'acme_faulty' raised SystemExit: 1"),
    ("1 +", "importing 'acme_faulty' raised SyntaxError"),
]


@pytest.mark.parametrize(("body", "problem"), FAULTY)
def test_an_invalid_policy_ends_the_start(write: Write, body: str, problem: str) -> None:
    write("acme_faulty.py", body)
    error = _refused("acme_faulty.P")
    assert problem in str(error)
    assert str(error).startswith("create.topic.policy.class.name: policy 'acme_faulty.P': ")


# One list of names a row, and the error.
NAMES = [
    ("acme_nowhere.P", "there is no module 'acme_nowhere'"),
    ("org.acme.CreatePolicy", "there is no module 'org'"),
    ("tests.acme_nowhere.P", "there is no module 'tests.acme_nowhere'"),
    ("Policy", "is not a class name"),
    ("my-policy.P", "is not a class name"),
    (".P", "is not a class name"),
    ("acme.P,", "is not a class name in 'acme.P,'"),
    ("acme.P,,acme.Q", "is not a class name"),
    ("acme.P,acme.P", "is named twice"),
]


@pytest.mark.parametrize(("class_names", "problem"), NAMES)
def test_a_missing_policy_class_is_reported(write: Write, tmp_path: Path, class_names: str, problem: str) -> None:
    error = str(_refused(class_names))
    assert problem in error
    assert str(tmp_path) in error or error.endswith("; each policy is allowed once")


def test_an_exception_in_close_does_not_hide_the_start_failure(write: Write) -> None:
    write(
        "acme_stuck.py",
        """
        class Sticky:
            def validate(self, request): pass
            def close(self): raise OSError("will not close")
        class Broken:
            def validate(self, request): pass
            def configure(self, settings): raise ValueError("the cause")
        """,
    )
    assert "configure raised ValueError: the cause" in str(_refused("acme_stuck.Sticky,acme_stuck.Broken"))


def test_keyboard_interrupt_ends_policy_loading(write: Write) -> None:
    write(
        "acme_interrupt.py",
        "class P:\n  def validate(self, r): pass\n  def configure(self, s): raise KeyboardInterrupt",
    )
    with pytest.raises(KeyboardInterrupt):
        load_policies("acme_interrupt.P", {})
