"""A real S3 server over a folder: S3Proxy, from Maven."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.ports import free_ports
from tests.support.processes import Process
from tests.support.tools import java_command, s3_classpath

BUCKET: Final = "history"
ENV: Final[Mapping[str, str]] = {
    "AWS_ACCESS_KEY_ID": "topicwright",
    "AWS_SECRET_ACCESS_KEY": "wright-secret",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
"""Credentials of clients. S3Proxy does not support the checksums that newer clients send by default."""


class S3Server:
    """A bucket in a folder, on a port that stays the same after a restart of the server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (self.port,) = free_ports(1)
        (folder / "data" / BUCKET).mkdir(parents=True)

    def url(self, path: str) -> str:
        """The URL of an archive in the bucket."""
        return f"s3://{BUCKET}/{path}?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"

    @property
    def bucket(self) -> Path:
        return self._folder / "data" / BUCKET

    @contextmanager
    def running(self) -> Iterator[None]:
        settings = {
            "s3proxy.endpoint": f"http://127.0.0.1:{self.port}",
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": ENV["AWS_ACCESS_KEY_ID"],
            "s3proxy.credential": ENV["AWS_SECRET_ACCESS_KEY"],
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self._folder / "data"),
            "jclouds.identity": "none",
            "jclouds.credential": "none",
        }
        properties = self._folder / "s3proxy.conf"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = java_command(s3_classpath(), "org.gaul.s3proxy.Main", "--properties", properties)
        with Process(command, cwd=self._folder) as process:
            process.wait_for_line(r"Started Server@", within_s=120)
            yield
