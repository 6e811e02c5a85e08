"""Markdown: its texts, and what stays around translated ones."""

from dataclasses import replace

import pytest

from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.markup import MarkedText

PAGE = r"""---
title: stays
---
# A *big* title #

> Some **bold `code`** and \*signs\* &amp; [a link](http://x.y/(a) "t") here
> goes on, ![alt](u.png) <b>x</b> <http://z.w>
lazy snake_case [ref][r] [short] [none][r2]

[r]: http://a
[short]: b
[none]: c

| a | b \| c |
|---|:-:|
| x *y* | 12 |

1. item
   more ~~and~~
   - sub

```py
code
```
Second
===

    code too

<div>
html
</div>
"""
TEXTS = [
    "A big title",
    "Some bold  and *signs* & a link here goes on,  x  lazy snake_case ref short [none][r2]",
    *("a", "b | c", "x y", "item more and", "sub", "Second"),
]
CAPITALS = (
    ("A *big* title", "A *BIG* TITLE"),
    ("Some **bold `code`** and", "SOME **BOLD `code`** AND"),
    ("signs", "SIGNS"),
    ('[a link](http://x.y/(a) "t") here\n> goes on', '[A LINK](http://x.y/(a) "t") HERE GOES ON'),
    ("<b>x</b> <http://z.w>\nlazy", "<b>X</b> <http://z.w> LAZY"),
    ("snake_case [ref][r] [short] [none][r2]", "SNAKE_CASE [REF][r] [SHORT] [NONE][R2]"),
    (r"| a | b \| c |", r"| A | B \| C |"),
    ("x *y*", "X *Y*"),
    ("item\n   more ~~and~~", "ITEM MORE ~~AND~~"),
    ("sub", "SUB"),
    ("Second", "SECOND"),
)


def in_capitals(document):
    return document.write([MarkedText(text.text.upper(), text.tags) for text in document.texts])


@pytest.mark.parametrize(
    "source", [PAGE, PAGE.replace("\n", "\r\n"), "\ufeff# T\n", "- x\n\ty", ""]
)
def test_a_page_whose_texts_stay_is_equal_to_the_byte(source):
    document = read_document("a.md", source.encode())
    assert document.write(document.texts) == source.encode()


def test_only_texts_change():
    document = read_document("a.md", PAGE.encode())
    assert [text.text for text in document.texts] == TEXTS
    expected = PAGE
    for old, new in CAPITALS:
        assert old in expected
        expected = expected.replace(old, new, 1)
    assert in_capitals(document).decode() == expected


@pytest.mark.parametrize(
    ("source", "text", "written"),
    [
        ("- one  \n  two", "one two", "- one   \n  two"),
        ("> one\\\n> two", "one two", "> one \\\n> two"),
        ("\u72ac\n\u8d70", "\u72ac\u8d70", "\u72ac\n\u8d70"),
        ("``a ` b`` word ***both** one*", "word both one", "``a ` b`` word ***both** one*"),
        ("a <!-- no --> b", "a  b", "a <!-- no --> b"),
    ],
)
def test_breaks_and_codes(source, text, written):
    document = read_document("a.md", source.encode())
    assert [marked.text for marked in document.texts] == [text]
    assert in_capitals(document).decode().lower() == written


def test_emphasis_around_nothing_goes_and_links_and_html_stay():
    document = read_document("a.md", b"A **~~b *c*~~ d** [e](f) *<b>g</b>* h")
    (text,) = document.texts
    emptied = MarkedText("A", tuple(replace(tag, position=1) for tag in text.tags))
    assert document.write([emptied]) == b"A[](f)*<b></b>*"
