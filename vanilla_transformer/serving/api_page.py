"""A page that shows the interface of the server, made from its OpenAPI description.

It loads nothing from elsewhere, so it works without a connection to the internet.
"""

import json
import re
from collections.abc import Mapping
from html import escape
from typing import Any

_CODE = re.compile("`([^`]+)`")
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em;
  color-scheme: light dark; }
code, pre { font-family: ui-monospace, monospace; font-size: .92em; }
h2 { margin-top: 2em; } h3 code { font-size: 1.1em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3em .8em .3em 0; border-bottom: 1px solid #8884;
  vertical-align: top; }
"""


def render_api_page(description: Mapping[str, Any]) -> str:
    """Makes the page from an OpenAPI description, as HTML."""
    sections: dict[str, str] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            tag = next(iter(operation.get("tags", ())), "")
            parts = [
                f"<h3><code>{method.upper()} {escape(path)}</code></h3>",
                f"<p>{escape(operation.get('summary', ''))}</p>",
            ]
            content = operation.get("requestBody", {}).get("content", {})
            if content:
                kinds = " or ".join(f"<code>{escape(kind)}</code>" for kind in content)
                rows = _render_fields(next(iter(content.values()))["schema"])
                parts.append(
                    f"<p>Body: {kinds}</p><table><tr><th>field</th><th>type</th><th>meaning</th>"
                    f"</tr>{rows}</table>"
                )
            sections[tag] = sections.get(tag, "") + "".join(parts)
    title = escape(description["info"]["title"])
    summary = _CODE.sub(r"<code>\1</code>", escape(description["info"].get("description", "")))
    body = "".join(f"<h2>{escape(tag)}</h2>{parts}" for tag, parts in sections.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1><p>{summary} "
        f'<a href="openapi.json">openapi.json</a> is for tools.</p>{body}</body></html>'
    )


def _render_fields(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    return "".join(
        f"<tr><td><code>{escape(name)}</code>{' (required)' if name in required else ''}</td>"
        f"<td>{escape(_describe_type(field))}</td><td>{escape(field['description'])}</td></tr>"
        for name, field in schema["properties"].items()
    )


def _describe_type(field: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(map(_describe_type, field["anyOf"])).removesuffix(" or null")
    if "items" in field:
        return f"list of {_describe_type(field['items'])}s"
    if "enum" in field:
        return " or ".join(json.dumps(choice) for choice in field["enum"])
    bounds = [
        f"{word} {field[name]:g}"
        for name, word in (("minimum", "at least"), ("maximum", "at most"))
        if name in field
    ]
    return ", ".join([field["type"], *bounds])
