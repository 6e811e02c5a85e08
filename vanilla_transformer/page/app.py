"""Builds the page, and says how it is served."""

from pathlib import Path
from typing import Any

import gradio as gr

from vanilla_transformer.page.components import Components
from vanilla_transformer.page.events import PageEvents
from vanilla_transformer.page.models import PageModels

_FOLDER = Path(__file__).parent
_WAITING_REQUESTS = 64
_REMEMBERED_USERS = 200  # the attention of each may take some MB


def build_page(models: PageModels, text: str = "") -> gr.Blocks:
    """Builds the page, `Blocks`; `launch(**launch_options())` serves it."""
    page = gr.Blocks(title="vanilla-transformer", analytics_enabled=False)
    with page:
        events = PageEvents(models, Components(models, text))
        events.connect(page, runs_at_once=bool(text.strip()))
    page.queue(max_size=_WAITING_REQUESTS, default_concurrency_limit=4)
    return page


def launch_options() -> dict[str, Any]:
    """Returns the arguments of `Blocks.launch` that the page needs wherever it runs.

    Nothing is loaded from other hosts, nothing is recorded, and no tunnel is opened.
    """
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    theme = gr.themes.Default(
        primary_hue="indigo",
        font=("system-ui", "sans-serif"),
        font_mono=("ui-monospace", "monospace"),
    ).set(  # Gradio's own grey on white, and white on indigo, are too pale
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        body_text_color_subdued="*neutral_600",
        button_primary_background_fill="*primary_600",
        body_text_color_subdued_dark="*neutral_300",
    )
    return {
        "theme": theme,
        "css": (_FOLDER / "page.css").read_text(encoding="utf-8"),
        "head": f"<script>{script}</script>",
        "footer_links": [],
        "share": False,
        "ssr_mode": False,
        "run_history": False,
        "enable_monitoring": False,
        "state_session_capacity": _REMEMBERED_USERS,
        "max_file_size": 1,  # byte: the page takes no files
    }
