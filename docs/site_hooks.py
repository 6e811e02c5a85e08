"""Hooks of MkDocs: the start page is the README, notebooks link to pages, options do not break."""

import re
from pathlib import Path
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Shows the README as the start page; its links to files beside the docs become plain text."""
    if page.file.src_uri != "index.md":
        return markdown
    readme = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")

    def on_the_site(link: re.Match[str]) -> str:
        name, target = link.groups()
        if target.startswith(("https:", "#", "docs/")):
            return f"[{name}]({target.removeprefix('docs/')})"
        return name

    return re.sub(r"\[([^]]+)\]\(([^)]+)\)", on_the_site, readme)


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
