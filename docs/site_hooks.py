"""Hooks of MkDocs: links of notebooks lead to pages, and options do not break at hyphens."""

import re
from typing import Any


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Marks options in code, and turns a notebook's links to .md and .ipynb into links to pages."""
    html = re.sub(
        r"<code>.*?</code>",
        lambda code: re.sub(
            r"(?<![^\s>])--?\w[\w-]*(?![^<]*>)", r'<span class="option">\g<0></span>', code[0]
        ),
        html,
        flags=re.DOTALL,
    )
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    return re.sub(r'(href="(?!https?:)[^"#]+)\.(?:md|ipynb)(?=["#])', r"\1.html", html)
