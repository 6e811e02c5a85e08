"""A Hugging Face Space: the page for the model in the folder `model` beside this file."""

from pathlib import Path

from vanilla_transformer.page.app import build_page, launch_options
from vanilla_transformer.page.models import PageModels

FIRST_TEXT = "transformer"
"""What the page opens with; write a text for your model."""

if __name__ == "__main__":
    models = PageModels([str(Path(__file__).resolve().parent / "model")])
    # The address to listen at comes from the variables GRADIO_SERVER_NAME and GRADIO_SERVER_PORT.
    build_page(models, FIRST_TEXT).launch(**launch_options())
