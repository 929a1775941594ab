"""The settings of `topicwright serve`, `worker` and `gateway`. Settings that Kafka has too use Kafka's keys.

Broker-level settings with defaults for topics (`log.retention.hours`, …) are settings too. These are declared in
`controller.machine.configs.topic_configs`, with the topic configs that they are defaults of.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controller.kafka.connections import MECHANISMS, PROTOCOLS
from controller.kafka.server.tls import VERSIONS as TLS_VERSIONS
from controller.machine.configs.values import AtLeast, Between, OneOf
from controller.machine.state import POLICY_PREFIX
from controller.policy.loading import source_hashes
from controller.settings import forms
from controller.settings.forms import Setting, list_setting, long_setting, setting, without_secret
from events.catalog import Configs, Endpoint

LISTENER_MECHANISMS: Final = ("OAUTHBEARER", *MECHANISMS)
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLUSTER_ACLS: Final = "ClusterAcls"
INT_MAX: Final = (1 << 31) - 1
PER_LISTENER_PREFIX: Final = "listener.name."
MEBIBYTE: Final = 1 << 20


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The values of all settings, made by `load_settings`. A field's default is its declaration, not a value."""

    node_id: int = setting(0, AtLeast(0))
    """The node id that clients see for the controller."""
    cluster_id: str | None = setting(None, form="1 to 100 letters, digits, - and _", parse=forms.cluster_id)
    """The cluster id. Without one, the first start generates an id and stores it in the data folder. With one, a data
    folder of another cluster is refused."""
    num_partitions: int = setting(1, AtLeast(1), decides=True)
    """Partition count of a topic that is created with the default count (-1) or automatically."""
    default_replication_factor: int = setting(1, Between(1, 32767), decides=True)
    """Replication factor of a topic that is created with the default factor (-1) or automatically."""
    auto_create_topics_enable: bool = setting(True, decides=True)
    """A Metadata request for a missing topic creates it, if the client allows it too (KIP-361)."""
    delete_topic_enable: bool = setting(True, decides=True)
    """Clients can delete topics."""
    create_topic_policy_class_name: str = setting("", form="a comma-separated list of module.Class", decides=True)
    """Python classes that accept or refuse each topic before it is created, in this order (KIP-108). They are imported
    from PYTHONPATH and the working folder, and receive all settings."""
    alter_config_policy_class_name: str = setting("", form="a comma-separated list of module.Class", decides=True)
    """Python classes that accept or refuse each change of the configs of topics and brokers (KIP-133), loaded like
    those for new topics."""
    enable_under_replicated_topic_creation: bool = setting(False, decides=True)
    """A topic can be created with fewer live brokers than its replication factor. At least min.insync.replicas
    brokers must be live; the missing replicas are added as brokers join (KIP-409)."""
    topic_rules_file: str | None = setting(None, form="the path of a file")
    """The file with the rules for changes of topics. It is applied at the start and on SIGHUP, if its content changed
    since this cluster last applied it."""
    controller_quorum_voters: Mapping[int, tuple[str, int]] = setting(
        "", form="ID@HOST:PORT, several separated by commas", parse=forms.voters
    )
    """With `join`, in a quorum with kraft.version 0: all voters, including this one, as configured on all nodes."""
    quorum_priority: int = setting(0, Between(0, 1000))
    """Voters only. Above 0, the voter takes over leadership once it has caught up, from Kafka's controllers and from
    Topicwright voters with a lower priority. With 0 it leads only if nobody else does."""
    controller_quorum_fetch_timeout_ms: int = setting(2000, AtLeast(1000))
    """Voters only: time without a response from the leader before an election starts."""
    controller_quorum_election_timeout_ms: int = setting(1000, AtLeast(100))
    """Voters only: time limit of an election before the next one starts."""
    metadata_log_max_record_bytes_between_snapshots: int = long_setting(20 * MEBIBYTE, AtLeast(1))
    """With --brokers kraft, and for a voter: bytes of the metadata log between two snapshots."""
    metadata_log_max_snapshot_interval_ms: int = long_setting(3_600_000, AtLeast(0))
    """With --brokers kraft, and for a voter: longest time between two snapshots if anything was committed; 0 means no
    limit."""
    metadata_max_retention_bytes: int = long_setting(100 * MEBIBYTE, AtLeast(0))
    """With --brokers kraft, and for a voter: size limit of the metadata log and its snapshots. Records after the older
    of the two latest snapshots are always kept."""
    broker_session_timeout_ms: int = setting(9000, AtLeast(1))
    """A broker without a heartbeat for this long is fenced."""
    kraft_version: int = setting(0, Between(0, 1))
    """With --brokers kraft: 0 for brokers that use controller.quorum.voters, which all brokers can. 1 also allows
    controller.quorum.bootstrap.servers, which needs Kafka 3.9 or later. It can be raised, never lowered."""
    auto_leader_rebalance_enable: bool = setting(True)
    """With --brokers kraft: whether leadership moves back to preferred replicas that are in sync again."""
    leader_imbalance_check_interval_seconds: int = setting(300, AtLeast(1))
    """With --brokers kraft: how often leadership is checked for that."""
    log_signing_key_location: str | None = setting(
        None, form="the path of a PEM file with an Ed25519 private key that is not encrypted"
    )
    """The private key that signs tree heads of the log, so that others can verify it: see docs/history.md."""
    log_signing_interval_ms: int = long_setting(600_000, AtLeast(1))
    """How often `serve`, and the worker that owns a partition, record a signed tree head if there are new events.
    Gateways sign tree heads on request and record none."""
    cluster_broker_ports: range = setting("any", form="any, none, or FIRST-LAST such as 9101-9120", parse=forms.ports)
    """In front of a cluster: the ports through which admin clients reach each broker via this process, one for each
    broker and listener. With `none` admin clients see only this process and cannot address a single broker."""
    simulated_broker_listeners: bool = setting(False)
    """Each simulated broker listens on its own port. It rejects changes of topics, which clients then send to
    the controller (KIP-4), and answers everything else."""
    socket_request_max_bytes: int = setting(4 * MEBIBYTE, AtLeast(1))
    """Largest request; a larger one closes its connection. Creating 10,000 topics takes 1 MB."""
    queued_max_request_bytes: int = long_setting(256 * MEBIBYTE, AtLeast(1))
    """Memory limit for the connections of one listener: partly received requests, requests in progress, and responses
    that clients have not read. Above it, the connections that use most are closed."""
    max_connections: int = setting(INT_MAX, AtLeast(0))
    """Most clients connected to one listener. All listeners and HTTP together are also bounded by the open file limit
    (ulimit -n), of which 2048, or half if that is less, are reserved for the log."""
    max_connection_creation_rate: int = setting(INT_MAX, AtLeast(1))
    """Most new Kafka connections a second, over all listeners (KIP-612). Ten times as many may come at once. As many
    more wait for their TLS handshake or first request, and others are closed."""
    max_connections_per_ip: int = setting(INT_MAX, AtLeast(0))
    """Most connections from one address, over all listeners and HTTP."""
    max_connections_per_ip_overrides: Mapping[str, int] = setting(
        "",
        form="ADDRESS:COUNT, several separated by commas, such as 10.0.0.1:100,[::1]:5",
        parse=forms.several(forms.connections, into=dict),
    )
    """Different limits for some addresses."""
    connections_max_idle_ms: int = long_setting(600_000, AtLeast(1))
    """A connection without a request for this long is closed."""
    max_in_flight_requests_per_connection: int = setting(1000, AtLeast(1))
    """Most requests of one connection in progress. Further ones are read when these are answered."""
    max_request_partition_size_limit: int = setting(2000, AtLeast(1))
    """Most partitions in one response of DescribeTopicPartitions (KIP-966)."""
    stream_commands_topic: str = setting("topicwright.commands", form="the name of a topic")
    """Workers and gateways: the topic for commands."""
    stream_events_topic: str = setting("topicwright.events", form="the name of a topic")
    """Workers and gateways: the topic for events. It is the source of truth and kept forever."""
    stream_partitions: int = setting(4, Between(1, 1000))
    """Partition count of both topics, and so the most workers that decide in parallel. It cannot be changed later."""
    stream_replication_factor: int = setting(-1, Between(-1, 32767))
    """Replication factor of both topics, which existing topics must also have. -1 creates topics with three replicas,
    or one for each broker if there are fewer, and accepts any factor of existing topics."""
    stream_group_id: str = setting("topicwright.workers", form="the name of a consumer group")
    """The consumer group that assigns partitions to workers."""
    stream_session_timeout_ms: int = setting(6000, Between(100, 1_800_000))
    """A worker without a heartbeat for this long loses its partitions. Kafka's group.min.session.timeout.ms, 6000 by
    default, is a lower bound."""
    store_cache_bytes: int = long_setting(128 * MEBIBYTE, AtLeast(MEBIBYTE))
    """Memory for cached state, over all partitions. Write buffers are extra: between 8 MiB and 48 MiB for each log or
    partition."""
    log_snapshot_interval_events: int = long_setting(250_000, AtLeast(0))
    """Number of events between two snapshots of the state, but at least two events for each topic. Queries about the
    past start at a snapshot instead of the first event. 0 disables snapshots."""
    log_archive_url: str | None = setting(
        None, form="a folder, s3://BUCKET/PATH, gs://BUCKET/PATH or abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
    )
    """The archive for closed segments of the log, as Parquet: see docs/history.md. Credentials of an object store come
    from the environment. Without it nothing is archived or dropped."""
    log_archive_interval_events: int = setting(65536, Between(256, 1 << 20))
    """Number of events in an archived segment: a power of two; other numbers are rounded down to one. Smaller segments
    are archived sooner and take more space."""
    log_events_retention_ms: int = long_setting(604_800_000, AtLeast(0, -1))
    """How long events stay in the data folder after they are archived and covered by a snapshot. Older events are read
    from the archive. -1 keeps all."""
    log_events_retention_bytes: int = long_setting(-1, AtLeast(0, -1))
    """Most bytes of archived events in the data folder; -1 means no limit."""
    gateway_heartbeat_interval_ms: int = setting(500, AtLeast(10))
    """How often a gateway sends a heartbeat."""
    gateway_session_timeout_ms: int = setting(5000, AtLeast(100))
    """A gateway without a heartbeat for this long is no longer shown to clients. A gateway that does not receive its
    own heartbeats for this long treats Kafka as lost."""
    gateway_answer_timeout_ms: int = setting(30_000, AtLeast(1))
    """How long a gateway waits for a decision if the request has no timeout."""
    stream_gateways_topic: str = setting("topicwright.gateways", form="the name of a topic")
    """The topic for the heartbeats of gateways."""
    cluster_client_properties_file: str | None = setting(None, form="the path of a file")
    """With --brokers cluster:BOOTSTRAP: librdkafka properties for the cluster, such as security.protocol,
    sasl.mechanism, sasl.username, sasl.password and ssl.ca.location."""
    cluster_watch_interval_ms: int = setting(1000, AtLeast(10))
    """With --brokers cluster:BOOTSTRAP: how often the cluster's brokers and topics are polled."""
    cluster_configs_watch_interval_ms: int = setting(10_000, AtLeast(10))
    """With --brokers cluster:BOOTSTRAP: how often the configs of all topics are polled."""
    log_level: str = setting("info", OneOf(("debug", "info", "warning", "error")))
    """The lowest level that is logged; info logs each decision."""

    # --- the clients that may connect, and what each may do

    authorizer_class_name: str = setting("", OneOf(("", "StandardAuthorizer", STANDARD_AUTHORIZER, CLUSTER_ACLS)))
    """StandardAuthorizer checks ACLs as Kafka's does, ClusterAcls those of the target cluster, which then also checks
    all logins. Without an authorizer everybody may do everything."""
    super_users: tuple[str, ...] = setting(
        "", form="TYPE:NAME, several separated by semicolons", parse=forms.several(forms.principal, ";")
    )
    """Principals that may do everything, regardless of ACLs."""
    allow_everyone_if_no_acl_found: bool = setting(False)
    """With true, everybody may do everything to a resource without any ACL."""
    controller_quota_window_num: int = setting(11, AtLeast(1))
    """Number of quota windows that a burst may use at once (KIP-599)."""
    controller_quota_window_size_seconds: int = setting(1, AtLeast(1))
    """Length of a quota window."""
    listeners: tuple[Endpoint, ...] = setting(
        "",
        form="NAME://HOST:PORT, several separated by commas with ports from 0 to 65535 and unique names and addresses",
        parse=forms.listeners,
    )
    """The addresses to listen on for Kafka clients, instead of --kafka. An empty host means all addresses of the
    machine; port 0 means any free port."""
    advertised_listeners: tuple[Endpoint, ...] = setting(
        "",
        form="NAME://HOST:PORT with a port from 1 to 65535 and a host that clients can reach, not 0.0.0.0",
        parse=forms.advertised,
    )
    """The addresses that clients get in Metadata. The default for each listener is the address where it listens."""
    listener_security_protocol_map: Mapping[str, str] = setting(
        ",".join(f"{protocol}:{protocol}" for protocol in PROTOCOLS),
        form=f"NAME:PROTOCOL, several separated by commas; protocols: {', '.join(PROTOCOLS)}",
        parse=forms.several(forms.protocol, least=1, into=dict),
    )
    """The security protocol of each listener, by listener name."""
    ssl_keystore_type: str = setting("PEM", OneOf(("PEM",)))
    """The format of the private key and its certificates."""
    ssl_keystore_location: str | None = setting(None, form="the path of a PEM file", per_listener=True)
    """The file with the private key and its certificate, followed by the certificate chain. Read again on SIGHUP."""
    ssl_key_password: str | None = setting(None, form="a password", secret=True, per_listener=True)
    """The password of an encrypted private key. Set it in the settings file, which others cannot read, rather than by
    --set."""
    ssl_truststore_type: str = setting("PEM", OneOf(("PEM",)))
    """The format of the trusted certificates."""
    ssl_truststore_location: str | None = setting(None, form="the path of a PEM file", per_listener=True)
    """The file with the certificates of the authorities that sign client certificates. Read again on SIGHUP."""
    ssl_client_auth: str = setting("none", OneOf(("none", "requested", "required")), per_listener=True)
    """Clients of an SSL listener must present a certificate (required), or can (requested). SASL_SSL listeners only use
    listener.name.NAME.ssl.client.auth (KIP-684)."""
    ssl_enabled_protocols: tuple[str, ...] = list_setting(TLS_VERSIONS, TLS_VERSIONS, per_listener=True)
    """The enabled TLS versions."""
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT",
        form="DEFAULT or RULE:PATTERN/REPLACEMENT/[LU], several separated by commas; PATTERN is a regular expression "
        "without lookaround and backreference",
        parse=forms.rules,
        per_listener=True,
    )
    """How the name in a client certificate becomes a principal: the first matching rule is used, DEFAULT uses the whole
    name (KIP-371)."""
    sasl_enabled_mechanisms: tuple[str, ...] = list_setting(
        ("SCRAM-SHA-512", "SCRAM-SHA-256"), LISTENER_MECHANISMS, per_listener=True
    )
    """The SASL mechanisms that clients may use. PLAIN needs users.file, OAUTHBEARER
    sasl.oauthbearer.jwks.endpoint.url."""
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        None, form="https://…, http://… or file:///…", parse=forms.jwks_url
    )
    """Where the identity provider publishes the public keys of its tokens (JWKS), for OAUTHBEARER and for bearer tokens
    over HTTP. Redirects are not followed. SSL_CERT_FILE in the environment names other trusted certificate
    authorities."""
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long_setting(3_600_000, AtLeast(1000))
    """How often the keys are fetched. An unknown key id causes another fetch."""
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long_setting(100, AtLeast(1))
    """The first wait between two fetches. It doubles while they fail or bring no new key."""
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long_setting(10_000, Between(1, 60_000))
    """The longest wait between two fetches."""
    sasl_oauthbearer_expected_issuer: str | None = setting(None, form="the issuer's URL, or *")
    """The only accepted issuer (claim iss), compared exactly; * accepts tokens of any, if a key of the provider signed
    them."""
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "", form="names, several separated by commas, or *", parse=forms.several(str)
    )
    """The accepted audiences; the claim aud of a token must have one of them. * accepts tokens for any, also those for
    other services."""
    sasl_oauthbearer_clock_skew_seconds: int = setting(30, Between(0, 3600))
    """Tolerated difference between the clocks of the identity provider and this process."""
    sasl_oauthbearer_sub_claim_name: str = setting("sub", form="the name of a claim")
    """The claim of a token that names the user."""
    sasl_oauthbearer_scope_claim_name: str = setting("scope", form="the name of a claim")
    """The claim with the scopes of a token, or the groups of its user: a list, or a text with spaces."""
    sasl_oauthbearer_scope_roles: Mapping[str, str] = setting(
        "",
        form=f"SCOPE:ROLE, several separated by commas; roles: {', '.join(forms.ROLES)}",
        parse=forms.several(forms.role, into=dict),
    )
    """The roles that scopes of a token give (docs/security.md). It needs authorizer.class.name."""
    users_file: str | None = setting(None, form="the path of a file")
    """The file of users with hashed passwords (for PLAIN and HTTP) and hashed tokens (for HTTP). `topicwright users`
    writes it. Read again on SIGHUP."""
    connections_max_reauth_ms: int = long_setting(0, AtLeast(0), per_listener=True)
    """A client must authenticate again after this time (KIP-368). 0 means never."""
    connection_failed_authentication_delay_ms: int = setting(100, AtLeast(0))
    """Delay before the response to a failed authentication."""
    sasl_server_max_receive_size: int = setting(524_288, AtLeast(1024))
    """Largest request before authentication is complete, in bytes. PLAIN and SCRAM need a few hundred."""
    authentication_timeout_ms: int = setting(30_000, AtLeast(1))
    """Time limit for authentication, TLS handshake included."""
    http_security_protocol: str = setting("PLAINTEXT", OneOf(("PLAINTEXT", "SSL")))
    """With SSL, HTTP uses TLS, with the key in ssl.keystore.location."""
    http_authentication: str = setting("auto", OneOf(("auto", "none", "required")))
    """With required, HTTP clients must authenticate; health checks never do. With auto they must if a listener uses
    SASL or client certificates, or users.file or an identity provider is set; otherwise HTTP listens on loopback only.
    With none HTTP is open to everybody on any address."""
    http_oauth_client_id: str | None = setting(None, form="a client id")
    """The client at the identity provider with which browsers log in to the page, by authorization code with PKCE. It
    needs http.oauth.redirect.url and sasl.oauthbearer.expected.issuer."""
    http_oauth_client_secret: str | None = setting(None, form="a secret", secret=True)
    """The secret of that client; without one it is a public client."""
    http_oauth_redirect_url: str | None = setting(
        None, form="https://HOST/login/callback; http:// only for localhost", parse=forms.redirect_url
    )
    """The address at which browsers reach /login/callback of this service."""
    http_oauth_scope: str = setting("openid", form="scopes separated by spaces")
    """The scopes that a login requests."""
    http_allowed_hosts: tuple[str, ...] = setting(
        "", form="names without ports, several separated by commas, or *", parse=forms.several(forms.host_name)
    )
    """Additional host names for HTTP. The Host header must be an address, localhost, the host of a listener, or one of
    these; this stops DNS rebinding. * allows any name."""
    http_trusted_proxies: tuple[str, ...] = setting(
        "",
        form="addresses and networks, several separated by commas, such as 10.0.0.1,10.1.0.0/16",
        parse=forms.several(forms.network),
    )
    """The proxies in front of HTTP. X-Forwarded-For is trusted from these only; it gives the client address for
    permissions and events."""

    # --- what `load_settings` derives

    topic_defaults: Configs
    """Broker-level settings that are defaults of topics, sorted by key."""
    texts: Configs
    """All settings that have a value, as texts, sorted by key. Includes `topic_defaults` and the policies' settings,
    but no secrets."""
    given: frozenset[str] = frozenset()
    """The keys that were set."""
    ignored: tuple[str, ...] = ()
    """Given settings that only Kafka's brokers have; some with a hint about the setting to use instead."""
    of_listeners: Mapping[str, Mapping[str, Any]] = {}
    """Settings of single listeners, by listener and field."""

    def of_listener(self, name: str, field: str) -> Any:
        return self.of_listeners.get(name, {}).get(field, getattr(self, field))

    def decision_settings(self) -> Configs:
        """The settings that decisions depend on, sorted by key, as in `SettingsChanged`.

        Defaults of topics are only included if they were set. With policies, their settings are included, without
        secrets, and the hash of the source of each class.
        """
        given = {key for key, _ in self.topic_defaults}
        hashes = source_hashes(f"{self.create_topic_policy_class_name},{self.alter_config_policy_class_name}")
        own = {key: without_secret(key, text) for key, text in self.texts if hashes and key.startswith(POLICY_PREFIX)}
        pairs = {key: text for key, text in self.texts if key in given or (key in BY_KEY and BY_KEY[key].decides)}
        return tuple(sorted({**pairs, **own, **hashes}.items()))

    def static_configs(self) -> Mapping[str, str]:
        """The settings that were set, as texts by key; secrets are empty."""
        texts = dict(self.texts)
        return {key: texts.get(key, "") for key in sorted(self.given)}


SETTINGS: Final = tuple(
    msgspec.structs.replace(field.default, key=field.name.replace("_", "."))
    for field in msgspec.structs.fields(ServeSettings)
    if isinstance(field.default, Setting)
)
BY_KEY: Final = {each.key: each for each in SETTINGS}
PER_LISTENER: Final = frozenset(each.key for each in SETTINGS if each.per_listener)
