"""The settings of listeners, TLS and logins, as a table; a part of `controller.settings.server_table`."""

from __future__ import annotations

from typing import Final

from controller.machine.configs.values import AtLeast, ConfigType, OneOf
from controller.settings.row import Setting

_STRING, _INT, _LONG = ConfigType.STRING, ConfigType.INT, ConfigType.LONG
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
PER_LISTENER_PREFIX: Final = "listener.name."

SECURITY_SETTINGS: Final = (
    Setting(
        "listeners",
        _STRING,
        "",
        "The addresses to listen on for Kafka clients, instead of --kafka. An empty host is every address of the "
        "machine, port 0 any free port.",
        form="NAME://HOST:PORT, several separated by commas",
    ),
    Setting(
        "advertised.listeners",
        _STRING,
        "",
        "The addresses under which clients are to come back. Without one, it is the address that is listened on.",
        form="NAME://HOST:PORT",
    ),
    Setting(
        "listener.security.protocol.map",
        _STRING,
        ",".join(f"{protocol}:{protocol}" for protocol in PROTOCOLS),
        "Which protocol each listener speaks, by its name.",
        form=f"NAME:PROTOCOL, several separated by commas; protocols: {', '.join(PROTOCOLS)}",
    ),
    Setting("ssl.keystore.type", _STRING, "PEM", "In which form the key and its certificates are.", OneOf(("PEM",))),
    Setting(
        "ssl.keystore.location",
        _STRING,
        None,
        "The file with the private key and its certificate, followed by the certificate's chain. Read again on SIGHUP.",
        form="the path of a PEM file",
    ),
    Setting(
        "ssl.key.password",
        _STRING,
        None,
        "What the private key is encrypted with. Say it in the settings file, where others cannot read it, not by "
        "--set.",
        form="a password",
        secret=True,
    ),
    Setting("ssl.truststore.type", _STRING, "PEM", "In which form the trusted authorities are.", OneOf(("PEM",))),
    Setting(
        "ssl.truststore.location",
        _STRING,
        None,
        "The file with the certificates of the authorities that sign clients' certificates. Read again on SIGHUP.",
        form="the path of a PEM file",
    ),
    Setting(
        "ssl.client.auth",
        _STRING,
        "none",
        "Whether clients of an SSL listener show a certificate. For a SASL_SSL listener only "
        "listener.name.NAME.ssl.client.auth counts (KIP-684).",
        OneOf(("none", "requested", "required")),
    ),
    Setting(
        "ssl.enabled.protocols",
        _STRING,
        ",".join(TLS_VERSIONS),
        "Which versions of TLS are spoken.",
        form=f"a comma-separated list of [{', '.join(TLS_VERSIONS)}]",
    ),
    Setting(
        "ssl.principal.mapping.rules",
        _STRING,
        "DEFAULT",
        "What the name in a client's certificate becomes: the first rule that applies makes the principal, DEFAULT "
        "takes the whole name (KIP-371).",
        form="DEFAULT or RULE:PATTERN/REPLACEMENT/[LU], several separated by commas; PATTERN is a regular expression "
        "without lookaround and backreference",
    ),
    Setting(
        "sasl.enabled.mechanisms",
        _STRING,
        "SCRAM-SHA-512,SCRAM-SHA-256",
        "By what clients of SASL listeners may log in. PLAIN needs users.file.",
        form=f"a comma-separated list of [{', '.join(MECHANISMS)}]",
    ),
    Setting(
        "users.file",
        _STRING,
        None,
        "The file of users with hashed passwords (for PLAIN and HTTP) and hashed tokens (for HTTP), written by "
        "`topicwright users`. Read again on SIGHUP.",
        form="the path of a file",
    ),
    Setting(
        "connections.max.reauth.ms",
        _LONG,
        "0",
        "How long a login by SASL lasts until the client has to log in anew (KIP-368); 0 for as long as it is "
        "connected.",
        AtLeast(0),
    ),
    Setting(
        "connection.failed.authentication.delay.ms",
        _INT,
        "100",
        "How long a failed login waits for its answer.",
        AtLeast(0),
    ),
    Setting(
        "sasl.server.max.receive.size",
        _INT,
        "524288",
        "How large a frame may be before a login is done, in bytes. PLAIN and SCRAM need some hundred.",
        AtLeast(1024),
    ),
    Setting(
        "authentication.timeout.ms",
        _INT,
        "30000",
        "How long a client may take to authenticate, the handshake of TLS included.",
        AtLeast(1),
    ),
    Setting(
        "http.security.protocol",
        _STRING,
        "PLAINTEXT",
        "Whether HTTP is on TLS, with ssl.keystore.location.",
        OneOf(("PLAINTEXT", "SSL")),
    ),
    Setting(
        "http.authentication",
        _STRING,
        "auto",
        "Whether HTTP clients have to log in with a user's password or a token; health is open to all. With auto they "
        "have to where a listener speaks SASL or wants certificates, or users.file is set; where they would not, HTTP "
        "listens on loopback only. none opens it to everybody, wherever it listens.",
        OneOf(("auto", "none", "required")),
    ),
    Setting(
        "http.allowed.hosts",
        _STRING,
        "",
        "More names that HTTP goes by. A request's Host header may be an address, localhost, a host that is listened "
        "on or advertised, or one of these, so that a page of another site, whose name is made to resolve here, gets "
        "nowhere. * is any name.",
        form="names without ports, several separated by commas, or *",
    ),
    Setting(
        "http.trusted.proxies",
        _STRING,
        "",
        "The proxies in front of HTTP: X-Forwarded-For is believed of these alone, and says which address permissions "
        "and events have.",
        form="addresses and networks, several separated by commas, such as 10.0.0.1,10.1.0.0/16",
    ),
)

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
"""What can be said for one listener, as `listener.name.NAME.KEY`, the name in small letters."""
