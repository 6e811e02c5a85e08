"""The page that translates, as files for a browser: asking a server, or with the model itself."""

from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = ("index.html", "page.css", "page.js")
"""Files of the page; they load `translator.js`, which a server and a folder have each their own."""
