"""What each subpackage, and each file beside them, imports besides itself, from the ground up.

A test holds the code to it, and `docs/tables.py` makes the table of `docs/tour.md` of it.
"""

_IMPORTS = {
    "names": "",
    "extras": "",
    "progress": "",
    "options": "names",
    "command_line": "options",
    "rules": "options",
    "model": "",
    "web": "",
    "registration": "model",
    "search": "options model",
    "tokenizer_sides": "model",
    "text": "extras model tokenizer_sides",
    "files": "names extras text",
    "weights": "model tokenizer_sides",
    "batches": "progress model tokenizer_sides text files",
    "data": "names options rules model tokenizer_sides text files",
    "training": "names extras progress options rules model search text files batches",
    "interop": "names extras model web search tokenizer_sides text files weights",
    "inspection": "model tokenizer_sides",
    "inference": "names extras progress options model search tokenizer_sides text files weights",
    "run": (
        "names extras progress options command_line rules model search tokenizer_sides text "
        "files batches data training inference"
    ),
    "adapt": "names progress options rules model text files data training interop inference run",
    "distil": "names progress model text files data training inference run",
    "documents": "extras model text files inference",
    "__init__": "model registration text files batches data inference documents",
    "serving": "options model web text files inference documents __init__",
    "page": "names options model tokenizer_sides files inspection inference",
    "commands": (
        "names extras progress options command_line rules registration search tokenizer_sides "
        "text files weights data training interop inspection inference run adapt distil "
        "documents __init__ serving page"
    ),
    "__main__": "commands",
}
IMPORTS = {room: tuple(names.split()) for room, names in _IMPORTS.items()}
