"""The settings of `serve`: their sources, their allowed values, and their effect."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.machine.configs.topic_configs import BROKER_SYNONYMS, TIERED_STORAGE_KEY, validate_topic_configs
from controller.machine.configs.values import Bad, read_value
from controller.machine.configs.views import ConfigSource, effective_configs
from controller.machine.state import Settings, settings_from_pairs
from controller.settings.forms import Setting
from controller.settings.load import ServeSettings, SettingsError, load_settings
from controller.settings.server import SETTINGS
from tests.docs.settings import settings_page

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"


def _file(folder: Path, text: str) -> Path:
    path = folder / "server.properties"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(*overrides: str, file: Path | None = None) -> str:
    """The error message for these settings."""
    with pytest.raises(SettingsError) as raised:
        load_settings(file, overrides)
    return str(raised.value)


def test_each_setting_has_a_field_and_a_valid_default() -> None:
    derived = {"topic_defaults", "texts", "given", "of_listeners", "ignored"}
    assert {setting.field for setting in SETTINGS} == set(ServeSettings.__struct_fields__) - derived
    settings = load_settings()
    for setting in SETTINGS:
        value = getattr(settings, setting.field)
        assert (value is None) == (setting.default is None), setting.key


VALUES = """
node.id                                | 7                           | 7
cluster.id                             | Ix3EocdxRySRXLH9Lu9uPQ      | 'Ix3EocdxRySRXLH9Lu9uPQ'
cluster.id                             |                             | None
num.partitions                         | +6                          | 6
auto.create.topics.enable              | FALSE                       | False
create.topic.policy.class.name         | a.B, c.D                    | 'a.B, c.D'
super.users                            | User:a;User:CN=b,O=c ;      | ('User:a', 'User:CN=b,O=c')
super.users                            |                             | ()
advertised.listeners                   | ssl://[::1]:2               | (Endpoint(name='SSL', host='::1', port=2),)
advertised.listeners                   |                             | ()
max.connections                        | 0                           | 0
max.connection.creation.rate           | 5                           | 5
max.connections.per.ip.overrides       | 10.0.0.1:5, [::01]:0        | {'10.0.0.1': 5, '::1': 0}
topic.rules.file                       | rules.json                  | 'rules.json'
log.level                              | debug                       | 'debug'
"""


@pytest.mark.parametrize("line", VALUES.strip().splitlines())
def test_setting_texts_are_parsed_to_values(line: str) -> None:
    key, text, expected = (cell.strip() for cell in line.split("|"))
    settings = load_settings(overrides=[f"{key}={text}"])
    assert repr(getattr(settings, key.replace(".", "_"))) == expected


SECRETS = """
ssl.key.pasword=           | unknown setting ssl.key.pasword (
ssl.keystore.key=          | unknown setting ssl.keystore.key (
listener.name.in.plain.sasl.jaas.config= | unknown setting listener.name.in.plain.sasl.jaas.config (
log.archive.ur=            | unknown setting log.archive.ur (--set): did you mean log.archive.url?
ssl.key.password PLANTED-  | --set ssl.key.password (hidden): must be KEY=VALUE
"""


@pytest.mark.parametrize("line", SECRETS.strip().splitlines())
def test_possible_secrets_are_hidden_in_messages(line: str) -> None:
    given, expected = (cell.strip() for cell in line.split("|"))
    message = refusal(f"{given}PLANTED-SECRET")
    assert message.startswith(expected)
    assert "PLANTED" not in message


def test_secret_settings_are_not_passed_to_policies() -> None:
    settings = load_settings(overrides=["ssl.key.password=PLANTED-SECRET"])
    assert settings.ssl_key_password == "PLANTED-SECRET"
    assert "PLANTED-SECRET" not in repr(settings.texts)


def test_listener_prefixed_settings_override_one_listener() -> None:
    settings = load_settings(overrides=["ssl.client.auth=requested", "listener.name.in.ssl.client.auth=required"])
    assert settings.of_listener("IN", "ssl_client_auth") == "required"
    assert settings.of_listener("OUT", "ssl_client_auth") == "requested"
    assert "listener.name.NAME. may be followed by" in refusal("listener.name.in.num.partitions=5")


REFUSED = """
num.partitions             | 0                          | a 32-bit integer in [1,...]
num.partitions             | three                      | a 32-bit integer in [1,...]
num.partitions             |                            | a 32-bit integer in [1,...]
default.replication.factor | 32768                      | a 32-bit integer in [1,...,32767]
auto.create.topics.enable  | yes                        | true or false
log.level                  | trace                      | one of [debug, info, warning, error]
cluster.id                 | a b                        | 1 to 100 letters, digits, - and _
advertised.listeners       | PLAINTEXT://0.0.0.0:9092   | NAME://HOST:PORT
advertised.listeners       | PLAINTEXT://a:0            | NAME://HOST:PORT
advertised.listeners       | PLAINTEXT://a:70000        | NAME://HOST:PORT
listeners                  | SSL://a                    | unique names and addresses
listeners                  | SSL:a:1                    | NAME://HOST:PORT
listener.security.protocol.map | IN:TLS                 | protocols: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
ssl.keystore.type          | JKS                        | one of [PEM]
ssl.client.auth            | maybe                      | one of [none, requested, required]
ssl.enabled.protocols      | TLSv1.1                    | a comma-separated list of [TLSv1.2, TLSv1.3]
ssl.principal.mapping.rules | RULE:(/x/                 | DEFAULT or RULE:PATTERN/REPLACEMENT/[LU]
sasl.enabled.mechanisms    | GSSAPI | a comma-separated list of [OAUTHBEARER, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512]
sasl.oauthbearer.jwks.endpoint.url | idp.example/jwks       | https://…, http://… or file:///…
sasl.oauthbearer.jwks.endpoint.url | ftp://idp.example/jwks | https://…, http://… or file:///…
sasl.oauthbearer.jwks.endpoint.url | file://host/jwks       | https://…, http://… or file:///…
sasl.oauthbearer.jwks.endpoint.url | https://a:b@idp.example | https://…, http://… or file:///…
sasl.oauthbearer.clock.skew.seconds | 3601 | [0,...,3600]
listener.name.in.ssl.client.auth | yes                  | one of [none, requested, required]
connections.max.reauth.ms  | -1                         | a 64-bit integer in [0,...]
advertised.listeners       | a:9092                     | NAME://HOST:PORT
max.connections.per.ip.overrides | 10.0.0.1             | ADDRESS:COUNT
max.connections.per.ip.overrides | example.com:5        | ADDRESS:COUNT
max.connections.per.ip.overrides | 10.0.0.1:-1          | ADDRESS:COUNT
http.allowed.hosts         | a.example:80               | names without ports
http.trusted.proxies       | proxy.example              | addresses and networks
http.trusted.proxies       | 10.0.0.1/8                 | addresses and networks
super.users                | alice                      | TYPE:NAME
log.retention.hours        | 0                          | a 32-bit integer in [1,...] or -1
log.segment.bytes          | 1000                       | a 32-bit integer in [1048576,...]
log.cleanup.policy         | compact,                   | a comma-separated list of [compact, delete]
min.insync.replicas        | 0                          | a 32-bit integer in [1,...]
remote.log.storage.system.enable | 1                    | true or false
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_an_invalid_value_is_reported_with_the_allowed_values(line: str) -> None:
    key, text, allowed = (cell.strip() for cell in line.split("|"))
    message = refusal(f"{key}={text}")
    assert message.startswith(f"setting {key}={text} (--set) is not allowed; allowed: ")
    assert allowed in message.partition("allowed: ")[2]


INVALID_PARTS = """
super.users                | User:a;bob                 | bob
listeners                  | SSL://a:1,SSL:a:1          | SSL:a:1
listeners                  | SSL://a:1,PLAINTEXT://a:1  | PLAINTEXT://a:1
advertised.listeners       | A://a:9092,A://b:9092      | A://b:9092
sasl.enabled.mechanisms    | PLAIN,GSSAPI               | GSSAPI
controller.quorum.voters   | 1@a:9093,2@b               | 2@b
"""


@pytest.mark.parametrize("line", INVALID_PARTS.strip().splitlines())
def test_the_invalid_element_of_a_list_is_reported(line: str) -> None:
    key, text, invalid = (cell.strip() for cell in line.split("|"))
    assert refusal(f"{key}={text}").startswith(
        f"setting {key}={text} (--set) is not allowed: {invalid!r} is invalid; allowed: "
    )


UNKNOWN = """
num.partition    | did you mean num.partitions?
log.retention.hour | did you mean log.retention.hours?
retention.ms     | the setting for all topics is log.retention.ms
max.message.bytes | the setting for all topics is message.max.bytes
ssl.truststore.certificates | the certificates are in the PEM file that ssl.truststore.location names
log.dirs         | the data folder is set by --data DIR
num.io.threads   | only Kafka's brokers have it
topic.policy.mode | docs/settings.md lists all settings
listener.name.x.listeners | listener.name.NAME. may be followed by connection
zzzzzzzz         | docs/settings.md lists all settings
"""


@pytest.mark.parametrize("line", UNKNOWN.strip().splitlines())
def test_an_unknown_key_is_reported_with_a_suggestion(line: str) -> None:
    key, hint = (cell.strip() for cell in line.split("|"))
    assert refusal(f"{key}=5").startswith(f"unknown setting {key} (--set): {hint}")


def test_all_unknown_keys_are_reported_together(tmp_path: Path) -> None:
    path = _file(tmp_path, "num.partitons=3\ncreate.topic.policy.class.name=a.B\nreplicas.min=2\nssl.provider=x\n")
    assert refusal("zz=1", file=path) == (
        f"unknown settings num.partitons ({path}, line 1): did you mean num.partitions?; "
        f"replicas.min ({path}, line 3): docs/settings.md lists all settings; "
        f"ssl.provider ({path}, line 4): only Kafka's brokers have it; "
        "zz (--set): docs/settings.md lists all settings; "
        "settings of policies begin with policy."
    )


STOCK = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""Settings in the config/server.properties of Kafka 4.3."""


def test_kafkas_server_properties_are_accepted(tmp_path: Path) -> None:
    settings = load_settings(_file(tmp_path, STOCK))
    assert (settings.node_id, settings.num_partitions, len(settings.listeners)) == (1, 1, 2)
    assert dict(settings.topic_defaults)["log.retention.hours"] == "168"
    assert "num.io.threads" in settings.ignored
    assert "log.dirs (the data folder is set by --data DIR)" in settings.ignored
    given = {line.partition("=")[0] for line in STOCK.split()}
    assert {one.split()[0] for one in settings.ignored} | settings.given == given


def test_overrides_take_precedence_over_the_settings_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "# ours\nnum.partitions = 3\nlog.level: warning\nlog.retention.hours 24\n")
    settings = load_settings(path, ["num.partitions=5", "num.partitions=6"])
    assert (settings.num_partitions, settings.log_level) == (6, "warning")
    assert settings.topic_defaults == (("log.retention.hours", "24"),)


def test_an_invalid_line_of_a_settings_file_is_reported(tmp_path: Path) -> None:
    path = _file(tmp_path, "node.id=1\n\nnum.partitions=many\n")
    assert refusal(file=path).startswith(f"setting num.partitions=many ({path}, line 3) is not allowed")
    assert load_settings(path, ["num.partitions=2"]).num_partitions == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"num.partitions=\xff", "cannot be read: not UTF-8 at byte 15"),
        (b"a=b\nc=\\u1", "line 2: \\u must be followed by four hexadecimal digits"),
    ],
)
def test_an_unreadable_settings_file_is_reported(tmp_path: Path, content: bytes | None, message: str) -> None:
    assert "/dev/zero cannot be read: is larger than 1048576 bytes" in refusal(file=Path("/dev/zero"))
    path = tmp_path / "server.properties"
    if content is not None:
        path.write_bytes(content)
    refused = refusal(file=path)
    assert refused.startswith(f"the settings file {path}")
    assert message in refused


@pytest.mark.parametrize("override", ["num.partitions", "=3", " =3", ""])
def test_an_override_must_be_key_and_value(override: str) -> None:
    assert "must be KEY=VALUE" in refusal(override)


def test_contradictory_topic_defaults_are_rejected() -> None:
    lags = ["log.cleaner.min.compaction.lag.ms=10", "log.cleaner.max.compaction.lag.ms=9"]
    message = refusal(*lags)
    assert all(lag in message for lag in lags)
    assert load_settings(overrides=lags[:1]).topic_defaults == (("log.cleaner.min.compaction.lag.ms", "10"),)


def test_decision_settings_are_sorted_complete_and_canonical() -> None:
    plain = load_settings().decision_settings()
    assert plain == (
        ("alter.config.policy.class.name", ""),
        ("auto.create.topics.enable", "true"),
        ("create.topic.policy.class.name", ""),
        ("default.replication.factor", "1"),
        ("delete.topic.enable", "true"),
        ("enable.under.replicated.topic.creation", "false"),
        ("num.partitions", "1"),
    )
    given = ["min.insync.replicas=2", "auto.create.topics.enable=TRUE", "num.partitions=+1", "log.level=error"]
    assert load_settings(overrides=given).decision_settings() == tuple(sorted([*plain, ("min.insync.replicas", "2")]))


def test_recorded_settings_round_trip_to_the_state_machine() -> None:
    given = {
        "num.partitions": "4",
        "default.replication.factor": "3",
        "auto.create.topics.enable": "false",
        "delete.topic.enable": "false",
        "create.topic.policy.class.name": "a.B",
        "policy.owners.file": "x.json",
        "enable.under.replicated.topic.creation": "true",
        "min.insync.replicas": "2",
        "log.retention.hours": "24",
        TIERED_STORAGE_KEY: "true",
    }
    pairs = load_settings(overrides=[f"{key}={text}" for key, text in given.items()]).decision_settings()
    defaults = (("log.retention.hours", "24"), ("min.insync.replicas", "2"), (TIERED_STORAGE_KEY, "true"))
    assert settings_from_pairs(pairs) == Settings(
        num_partitions=4,
        default_replication_factor=3,
        auto_create_topics_enable=False,
        delete_topic_enable=False,
        create_topic_policy_class_name="a.B",
        enable_under_replicated_topic_creation=True,
        topic_defaults=defaults,
    )
    static = {
        entry.name: entry.value
        for entry in effective_configs((), defaults)
        if entry.source is ConfigSource.STATIC_BROKER_CONFIG
    }
    assert static == {"retention.ms": "86400000", "min.insync.replicas": "2"}


def test_policies_receive_all_settings_and_their_own() -> None:
    overrides = ["policy.owners.file=x.json", "num.partitions=3", "log.retention.hours=24"]
    mapping = dict(load_settings(overrides=overrides).texts)
    own = {"policy.owners.file": "x.json", "num.partitions": "3", "log.retention.hours": "24", "log.level": "info"}
    assert own.items() <= mapping.items()
    assert {setting.key for setting in SETTINGS if setting.default is not None and not setting.secret} <= mapping.keys()
    assert "cluster.id" not in mapping


def test_settings_page_is_current() -> None:
    assert DOCS.read_text(encoding="utf-8") == settings_page(), (
        "docs/settings.md is out of date: python -m tests.docs.settings > docs/settings.md"
    )


_KEYS = st.sampled_from([*(setting.key for setting in SETTINGS), *sorted(BROKER_SYNONYMS), "policy.x", "nonsense"])
_TEXTS = st.one_of(st.integers(-2, 1 << 33).map(str), st.sampled_from(["true", "delete", "gzip", "info", "", "a:1"]))


def _settings_or_error(overrides: list[str]) -> ServeSettings | SettingsError:
    try:
        return load_settings(overrides=overrides)
    except SettingsError as error:
        return error


@given(st.dictionaries(_KEYS, _TEXTS, max_size=4))
def test_accepted_settings_are_valid_for_the_state_machine(given: dict[str, str]) -> None:
    settings = _settings_or_error([f"{key}={text}" for key, text in given.items()])
    if isinstance(settings, SettingsError):
        assert any(key in str(settings) for key in given), f"{settings} names none of {given}"
        return
    machine = settings_from_pairs(settings.decision_settings())
    assert machine.num_partitions == settings.num_partitions, f"{given} did not reach the state machine"
    rejection = validate_topic_configs((("preallocate", "true"),), machine.topic_defaults)
    assert rejection is None, f"with {given} no topic can be created: {rejection}"


@given(st.sampled_from([setting for setting in SETTINGS if not setting.form]), _TEXTS)
def test_settings_are_rejected_exactly_by_type_and_limits(setting: Setting, text: str) -> None:
    bad = isinstance(read_value(setting.key, setting.kind, setting.allowed, text), Bad)
    refused = isinstance(_settings_or_error([f"{setting.key}={text}"]), SettingsError)
    assert refused == bad, f"{setting.key}={text}: refused is {refused}, bad is {bad}"
