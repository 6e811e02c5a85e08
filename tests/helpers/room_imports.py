"""What each subpackage, and each file beside them, may import besides itself, from the ground up.

A test holds the code to it, and `docs/tables.py` makes the table of `docs/tour.md` of it.
"""

BESIDE = (
    *("names", "extras", "progress", "options", "command_line", "rules", "search"),
    "registration",
)
IMPORTS = {
    "names": (),
    "extras": (),
    "progress": (),
    "options": ("names",),
    "command_line": ("options",),
    "rules": ("options",),
    "model": (),
    "web": (),
    "registration": ("model",),
    "search": ("model", "options"),
    "text": ("model", "extras", "options"),
    "files": ("model", "text", *BESIDE),
    "data": ("model", "text", "files", *BESIDE),
    "training": ("model", "text", "files", "data", *BESIDE),
    "interop": ("model", "text", "files", "web", *BESIDE),
    "inspection": ("model", "text", *BESIDE),
    "inference": ("model", "text", "files", "interop", *BESIDE),
    "run": ("model", "text", "files", "data", "training", "interop", "inference", *BESIDE),
    "adapt": ("model", "text", "files", "data", "training", "interop", "inference", "run", *BESIDE),
    "distil": (
        *("model", "text", "files", "data", "training", "interop", "inference", "run"),
        *BESIDE,
    ),
    "documents": ("model", "text", "files", "inference", *BESIDE),
    "__init__": (*("model", "text", "files", "data", "inference", "documents", "registration"),),
    "serving": ("model", "text", "files", "inference", "documents", "web", "__init__", *BESIDE),
    "page": ("model", "text", "files", "inference", "inspection", *BESIDE),
    "commands": (
        *("model", "text", "files", "data", "training", "interop", "inspection", "inference"),
        *("run", "adapt", "distil", "documents", "serving", "page", "__init__", *BESIDE),
    ),
    "__main__": ("commands",),
}
