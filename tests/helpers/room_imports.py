"""What each subpackage, and each file beside them, imports besides itself, from the ground up.

A test holds the code to it, and `docs/tables.py` makes the table of `docs/tour.md` of it.
"""

_IMPORTS = {
    "names": "",
    "extras": "",
    "progress": "",
    "language_tags": "extras",
    "columns": "language_tags",
    "grouping": "",
    "options": "names",
    "command_line": "options",
    "rules": "options",
    "model": "",
    "web": "",
    "registration": "model",
    "search": "options model",
    "tokenizer_sides": "model",
    "text": "extras language_tags model tokenizer_sides",
    "files": "names extras language_tags",
    "weights": "model tokenizer_sides",
    "batches": "progress language_tags columns grouping model tokenizer_sides text files",
    "data": "names language_tags columns options rules model tokenizer_sides text files",
    "training": (
        "names extras progress language_tags columns options rules model search text files batches"
    ),
    "interop": "names extras progress model search tokenizer_sides files weights",
    "browser": "names language_tags model web search tokenizer_sides text files interop",
    "inspection": "model tokenizer_sides",
    "inference": (
        "names extras progress language_tags grouping options rules model search tokenizer_sides "
        "text files weights"
    ),
    "run": (
        "names extras progress language_tags columns grouping options command_line rules model "
        "search tokenizer_sides text files batches data training inference"
    ),
    "adapt": (
        "names progress language_tags columns options rules model files data training interop "
        "inference run"
    ),
    "distil": ("names progress options language_tags columns rules text files data inference run"),
    "documents": "extras language_tags model text files inference",
    "__init__": "model registration text files batches data inference documents",
    "serving": "language_tags options model web text files inference documents __init__",
    "page": "names options model tokenizer_sides inspection inference",
    "commands": (
        "names extras progress columns options command_line rules registration search "
        "tokenizer_sides text files weights data training interop browser inspection inference "
        "run adapt distil documents __init__ serving page"
    ),
    "__main__": "commands",
}
IMPORTS = {room: tuple(names.split()) for room, names in _IMPORTS.items()}
