"""A hook of mkdocs.yml: links to files outside docs/ become text, because the site has no pages for them.

`test_docs_index_has_every_page_and_links_resolve` checks them, and `mkdocs build --strict` all other links."""

import re

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./[^)]*|adr/)\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    return _OUTSIDE.sub(r"\1", markdown)
