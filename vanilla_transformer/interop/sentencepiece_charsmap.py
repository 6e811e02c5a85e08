"""Steps of `tokenizers` that replace characters as the charsmap of a SentencePiece model does.

SentencePiece replaces, from left to right, the longest key of the map (`precompiled_charsmap`).
`normalizers.Precompiled` looks a whole grapheme cluster up instead and replaces it by the value of
the shortest key, so that "e" with two accents loses one. Hence it gets here single characters only:

1. A text is cut within clusters: by `_JOIN` inside a key, and by `_APART` elsewhere.
2. `Precompiled` replaces characters.
3. Where `_JOIN` stood, NFC composes them. `_APART` keeps it from composing, or putting into order,
   other characters. Keys with another value than NFC's are replaced one by one.
"""

import re
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import cache

from tokenizers import Regex, normalizers

_JOIN, _APART, _BETWEEN = "\ufdd0", "\ufdd1", "\ufdd2"  # noncharacters, which no text contains

_EXTENDING = r"\p{M}\u200c\u200d\n"
"""Characters of the cluster of the one before, if both take less than six bytes."""


@cache  # both sides of a model mostly have the same map
def charsmap_steps(charsmap: bytes) -> list[normalizers.Normalizer]:
    """Makes steps that replace the longest keys of a map from left to right."""
    pairs = read_charsmap(charsmap)
    keys = {key: value for key, value in pairs.items() if len(key) > 1}
    # the characters of a key after step 2, and whether NFC makes its value of them
    mapped = {key: _JOIN.join(pairs.get(sign, sign) for sign in key) for key in keys}
    joined = _BETWEEN.join(mapped.values()).replace(_JOIN, "")
    composed = normalizers.NFC().normalize_str(joined).split(_BETWEEN)
    irregular = defaultdict[str, set[str]](set)
    for (key, value), ours in zip(keys.items(), composed, strict=True):
        if ours != value:
            irregular[value].add(mapped[key])
    later = "".join(sorted({sign for key in keys for sign in key[1:]}))
    apart = rf"(?=[{_EXTENDING}{re.escape(later)}])(?<!{_JOIN})"
    # NFC skips characters without a position in the text, such as an insertion at its start
    steps: list[normalizers.Normalizer] = [normalizers.Prepend(_APART)]
    if keys:
        steps.append(normalizers.Replace(Regex(_inside_of(keys)), _JOIN))
    steps += [normalizers.Replace(Regex(apart), _APART), normalizers.Precompiled(charsmap)]
    for value, spellings in irregular.items():
        pattern = f"(?<!{_JOIN})(?:{_pattern_of(spellings)})(?!{_JOIN})"
        steps.append(normalizers.Replace(Regex(pattern), value))
    if keys:
        steps += [normalizers.Replace(_JOIN, ""), normalizers.NFC()]
    return [*steps, normalizers.Replace(_APART, "")]


def read_charsmap(charsmap: bytes) -> dict[str, str]:
    """Reads the pairs of a map: a double array of the library Darts-clone, then the values."""
    size = int.from_bytes(charsmap[:4], "little")
    units = struct.unpack(f"<{size // 4}I", charsmap[4 : 4 + size])
    values = charsmap[4 + size :]

    def offset(unit: int) -> int:
        return (unit >> 10) << (8 if unit & 1 << 9 else 0)

    @cache  # ends of keys are shared
    def ends_below(node: int) -> list[tuple[bytes, str]]:
        """Returns the rest of each key that goes through a node of the array, and its value."""
        ends = []
        for byte in range(1, 256):
            at = node ^ byte
            if at < len(units) and units[at] & 0x800000FF == byte:
                below = at ^ offset(units[at])
                if units[at] >> 8 & 1:  # a key ends here
                    start = units[below] & 0x7FFFFFFF
                    value = values[start : values.index(b"\0", start)].decode()
                    ends.append((bytes([byte]), value))
                ends += [(bytes([byte]) + rest, value) for rest, value in ends_below(below)]
        return ends

    return {key.decode(): value for key, value in ends_below(offset(units[0]))}


def _inside_of(keys: Collection[str]) -> str:
    """Returns a pattern of the positions inside keys."""
    heads = defaultdict[str, set[str]](set)  # by the rest of the key
    for key in keys:
        # a shorter key has the positions before its end
        shorter = max((end for end in range(2, len(key)) if key[:end] in keys), default=1)
        for cut in range(shorter, len(key)):
            heads[key[cut:]].add(key[:cut])
    tails = defaultdict[tuple[int, frozenset[str]], set[str]](set)
    for tail, before in heads.items():
        for length in set(map(len, before)):  # a pattern behind has one length
            same = frozenset(head for head in before if len(head) == length)
            tails[length, same].add(tail)
    later = "".join(sorted({tail[0] for tail in heads}))
    positions = "|".join(
        f"(?={_pattern_of(after)})(?<={_pattern_of(before)})"
        for (_, before), after in tails.items()
    )
    return f"(?=[{re.escape(later)}])(?:{positions})"


def _pattern_of(words: Iterable[str]) -> str:
    """Returns a pattern of words; characters that the same rests follow become a class."""
    rests = defaultdict[str, set[str]](set)
    for word in sorted(words):  # a set has another order in each run
        rests[word[:1]].add(word[1:])
    classes = defaultdict[frozenset[str], list[str]](list)
    for sign, rest in rests.items():
        classes[frozenset(rest)].append(sign)
    parts = []
    for after, signs in classes.items():
        first = "".join(map(re.escape, sorted(signs)))
        start = f"[{first}]" if len(signs) > 1 else first
        parts.append(start + ("" if after == {""} else _pattern_of(after)))
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
