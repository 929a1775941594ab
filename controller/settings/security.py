"""Declares the settings of listeners, TLS, authentication, authorization and quotas. `ServeSettings` inherits them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from controller.kafka.connections import MECHANISMS, PROTOCOLS
from controller.kafka.server.tls import VERSIONS as TLS_VERSIONS
from controller.machine.configs.values import Allowed, AtLeast, Between, ConfigType, OneOf, allowed_text
from controller.settings import forms
from events.catalog import Endpoint
from events.codec import HIDDEN

LISTENER_MECHANISMS: Final = ("OAUTHBEARER", *MECHANISMS)
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLUSTER_ACLS: Final = "ClusterAcls"
INT_MAX: Final = (1 << 31) - 1
PER_LISTENER_PREFIX: Final = "listener.name."
SECRET: Final = re.compile(r"pass?w|pwd|secret|token|credential|jaas|api.?key|keystore\.key|private", re.IGNORECASE)


def without_secret(key: str, text: str) -> str:
    """Returns the text of a setting for the log, hidden if its key, or a password in a URL, shows a possible secret."""
    return HIDDEN.decode() if text and (SECRET.search(key) or re.search(r"://[^/\s]*@", text)) else text


class Setting(msgspec.Struct, frozen=True):
    """One setting. `default` is a text, or None if the setting has no value until it is set.

    `form` describes allowed values that `kind` and `allowed` do not, and `parse` reads such values; `limits` describes
    its further checks. `decides` marks a setting that decisions depend on: the log records its value. A `secret` is
    never displayed, nor passed to policies.
    """

    default: str | None
    allowed: Allowed = None
    form: str = ""
    parse: Callable[[str], object] | None = None
    limits: str = ""
    kind: ConfigType = ConfigType.STRING
    decides: bool = False
    secret: bool = False
    key: str = ""

    @property
    def field(self) -> str:
        """The attribute of ServeSettings that holds the value."""
        return self.key.replace(".", "_")

    @property
    def allowed_text(self) -> str:
        return self.form or allowed_text(self.kind, self.allowed)


def setting(default: str | int | None, allowed: Allowed = None, **more: Any) -> Any:
    """Declares a field of ServeSettings, whose docstring is the description in docs/settings.md. The key is the field's
    name with `.` for `_`; the default gives the type."""
    if isinstance(default, bool):
        return Setting(str(default).lower(), allowed, **{"kind": ConfigType.BOOLEAN, **more})
    if isinstance(default, int):
        return Setting(str(default), allowed, **{"kind": ConfigType.INT, **more})
    return Setting(default, allowed, **more)


def long_setting(default: int, allowed: Allowed) -> Any:
    """Declares a field of ServeSettings whose type in Kafka is LONG, not INT."""
    return setting(default, allowed, kind=ConfigType.LONG)


class SecuritySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that control which clients may connect, what each may do, and how much."""

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
        form="NAME://HOST:PORT, several separated by commas",
        parse=forms.listeners,
        limits=" with ports from 0 to 65535 and unique names and addresses",
    )
    """The addresses to listen on for Kafka clients, instead of --kafka. An empty host means all addresses of the
    machine; port 0 means any free port."""
    advertised_listeners: tuple[Endpoint, ...] = setting(
        "",
        form="NAME://HOST:PORT",
        parse=forms.advertised,
        limits=" with a port from 1 to 65535 and a host that clients can reach, not 0.0.0.0",
    )
    """The addresses that clients are told to connect to. By default a listener advertises the address it listens on."""
    listener_security_protocol_map: Mapping[str, str] = setting(
        ",".join(f"{protocol}:{protocol}" for protocol in PROTOCOLS),
        form=f"NAME:PROTOCOL, several separated by commas; protocols: {', '.join(PROTOCOLS)}",
        parse=forms.several(forms.protocol, least=1, into=dict),
    )
    """The security protocol of each listener, by listener name."""
    ssl_keystore_type: str = setting("PEM", OneOf(("PEM",)))
    """The format of the private key and its certificates."""
    ssl_keystore_location: str | None = setting(None, form="the path of a PEM file")
    """The file with the private key and its certificate, followed by the certificate chain. Read again on SIGHUP."""
    ssl_key_password: str | None = setting(None, form="a password", secret=True)
    """The password of an encrypted private key. Set it in the settings file, which others cannot read, rather than by
    --set."""
    ssl_truststore_type: str = setting("PEM", OneOf(("PEM",)))
    """The format of the trusted certificates."""
    ssl_truststore_location: str | None = setting(None, form="the path of a PEM file")
    """The file with the certificates of the authorities that sign client certificates. Read again on SIGHUP."""
    ssl_client_auth: str = setting("none", OneOf(("none", "requested", "required")))
    """Whether clients of an SSL listener must present a certificate. SASL_SSL listeners only use
    listener.name.NAME.ssl.client.auth (KIP-684)."""
    ssl_enabled_protocols: tuple[str, ...] = setting(
        ",".join(TLS_VERSIONS),
        form=f"a comma-separated list of [{', '.join(TLS_VERSIONS)}]",
        parse=forms.choices(tuple(TLS_VERSIONS)),
    )
    """The enabled TLS versions."""
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT",
        form="DEFAULT or RULE:PATTERN/REPLACEMENT/[LU], several separated by commas; PATTERN is a regular expression "
        "without lookaround and backreference",
        parse=forms.rules,
    )
    """How the name in a client certificate becomes a principal: the first matching rule is used, DEFAULT uses the whole
    name (KIP-371)."""
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "SCRAM-SHA-512,SCRAM-SHA-256",
        form=f"a comma-separated list of [{', '.join(LISTENER_MECHANISMS)}]",
        parse=forms.choices(LISTENER_MECHANISMS),
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
    connections_max_reauth_ms: int = long_setting(0, AtLeast(0))
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
    """Whether HTTP clients must authenticate; health checks never do. With auto they must if a listener uses SASL or
    client certificates, or users.file or an identity provider is set; otherwise HTTP listens on loopback only. With
    none HTTP is open to everybody on any address."""
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


PER_LISTENER: Final = frozenset(
    {
        "ssl.keystore.location",
        "ssl.key.password",
        "ssl.truststore.location",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.principal.mapping.rules",
        "sasl.enabled.mechanisms",
        "connections.max.reauth.ms",
    }
)
"""The settings that `listener.name.NAME.KEY` may set for one listener; NAME is in lower case."""
