"""Tokens for a login by OAUTHBEARER at the managed Kafka of a cloud, by methods that librdkafka does not have:
`sasl.oauthbearer.method=aws_msk_iam` (Amazon MSK) and `google` (Managed Service for Apache Kafka).

The signers of the clouds, which are extras, find credentials as all clients of that cloud do: in the environment, in
files of the user, or at the machine's metadata service. They may wait for the network, so they run in threads.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC
from time import time  # noqa: TID251 - when a token was issued
from typing import Any, Final

import structlog

from events.errors import MissingExtra

METHOD: Final = "sasl.oauthbearer.method"
CONFIG: Final = "sasl.oauthbearer.config"
Token = tuple[str, float]
"""A token, and when it expires, in seconds since 1970."""


def _aws_msk_iam(config: str) -> Callable[[], Token]:
    """The token is a URL to connect to MSK, signed with AWS's credentials."""
    region = re.fullmatch(r"region=([a-z0-9-]{1,50})", config)
    if region is None:
        raise ValueError(f"{CONFIG}={config} must be region=REGION, the region of the cluster in AWS")
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    def token() -> Token:
        try:
            signed, expires_ms = MSKAuthTokenProvider.generate_auth_token(region[1])
        except AttributeError:  # the signer uses the credentials, which are None
            raise ValueError("no credentials of AWS in the environment, in ~/.aws or at the machine") from None
        return signed, expires_ms / 1000

    return token


def _google(_: str) -> Callable[[], Token]:
    """The token is the access token of a service account, in the form of a JWT."""
    import google.auth
    import urllib3
    from google.auth.transport.urllib3 import Request

    def token() -> Token:
        credentials, _project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
        credentials.refresh(Request(urllib3.PoolManager()))
        user = getattr(credentials, "service_account_email", None)
        if not user:
            raise ValueError("the credentials of Google are not those of a service account")
        expires_s = credentials.expiry.replace(tzinfo=UTC).timestamp()
        claims = {"exp": expires_s, "iat": time(), "iss": "Google", "sub": user, "scope": "kafka"}
        parts = json.dumps({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}), json.dumps(claims), credentials.token
        return ".".join(base64.urlsafe_b64encode(each.encode()).decode().rstrip("=") for each in parts), expires_s

    return token


METHODS: Final = {"aws_msk_iam": _aws_msk_iam, "google": _google}
"""By method: the function that makes its source of tokens from `sasl.oauthbearer.config`."""


def librdkafka_settings(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a librdkafka client: with an `oauth_cb` in place of a method of `METHODS`. Gets a token, whose
    failure librdkafka would hide, so call this in a thread. A client waits at least a second for its first token, so
    make it in a thread too. Raises ValueError and MissingExtra."""
    method = properties.get(METHOD, "")
    if method not in METHODS:
        return dict(properties)
    try:
        token = METHODS[method](properties.get(CONFIG, ""))
        token()
    except ImportError as error:
        raise MissingExtra(f"{METHOD}={method}", method.partition("_")[0], error) from None
    except Exception as error:  # the signers have many
        raise ValueError(f"no token by {METHOD}={method}: {error}") from None

    def logged(_: str) -> Token:
        try:
            return token()
        except Exception as error:  # librdkafka drops the reason
            structlog.get_logger("topicwright").warning("no_token", method=method, why=str(error))
            raise

    return {key: each for key, each in properties.items() if key != METHOD} | {"oauth_cb": logged}
