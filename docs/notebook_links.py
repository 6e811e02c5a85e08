"""A hook of MkDocs: on the site, links of notebooks lead to pages, as those of other files do."""

import re
from typing import Any


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Turns links to .md and .ipynb files into links to the pages that are made of them."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    return re.sub(r'(href="(?!https?:)[^"#]+)\.(?:md|ipynb)(?=["#])', r"\1.html", html)
