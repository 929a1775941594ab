"""The stylesheet, the script and the picture of pages: kept in memory, under names that change with what is in them."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

from litestar import Response, get
from litestar.params import FromPath

from controller.http.errors import refused
from controller.http.form.packing import packed
from controller.http.pages.negotiating import ASSETS
from controller.machine.errors import ErrorCode

_KINDS: Final = {"page.css": "text/css", "page.js": "text/javascript", "page.svg": "image/svg+xml"}
_FOREVER: Final = "public, max-age=31536000, immutable"


def _loaded() -> tuple[dict[str, str], dict[str, tuple[bytes, str]]]:
    addresses, contents = {}, {}
    for file, kind in _KINDS.items():
        content = (Path(__file__).with_name("assets") / file).read_bytes()
        stem, _, extension = file.partition(".")
        name = f"{stem}-{blake2b(content, digest_size=6).hexdigest()}.{extension}"
        addresses[file] = ASSETS + name
        contents[name] = content, kind
    return addresses, contents


ADDRESSES, _CONTENTS = _loaded()
"""Where each file is, by its own name."""


@get(ASSETS + "{name:str}", sync_to_thread=False)
def asset(name: FromPath[str]) -> Response[bytes]:
    """One of the files."""
    if name not in _CONTENTS:
        message = f"there is no {name[:60]!r} here; a page that was opened before an upgrade needs to be loaded again"
        raise refused(404, ErrorCode.RESOURCE_NOT_FOUND, message)
    content, kind = _CONTENTS[name]
    answer = packed(content, kind)
    answer.headers["cache-control"] = _FOREVER
    return answer
