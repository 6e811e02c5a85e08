"""Random damage to the bytes of a file, and a name for what came of it."""

import json
import random

KINDS = ("a flipped bit", "cut off", "empty", "inserted bytes", "zeros", "other text")
TEXTS = (b"null", b"[]", b"{}", b'"text"', b"0", b"\n", b"\xff\xfe", b"a: b\n")


def damaged(content, seed):
    """Returns damaged bytes, and the kind of damage."""
    chance = random.Random(seed)
    kind = chance.choice(KINDS)
    index = chance.randrange(max(len(content), 1))
    if kind == "a flipped bit" and content:
        flipped = content[index] ^ 1 << chance.randrange(8)
        return content[:index] + bytes([flipped]) + content[index + 1 :], kind
    if kind == "cut off":
        return content[:index], kind
    if kind == "inserted bytes":
        inserted = chance.randbytes(chance.choice((1, 4, 100)))
        return content[:index] + inserted + content[index:], kind
    if kind == "zeros":
        return content[:index] + bytes(len(content) - index), kind
    if kind == "other text":
        return chance.choice(TEXTS), kind
    return b"", "empty"


def is_valid_json(content):
    """Whether damaged bytes are again a JSON object, whose values nobody can check."""
    try:
        return isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        return False
