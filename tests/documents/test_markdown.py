"""Markdown: its texts, and what stays around translated ones."""

import re
from dataclasses import replace

import pytest
import yaml
from capital_texts import in_capitals, unchanged
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin

from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.marked_text import TextTranslation
from vanilla_transformer.documents.markup import place_tags
from vanilla_transformer.documents.named_tags import name_tags, with_named_tags
from vanilla_transformer.text.token_links import TokenLinks

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
    ("snake_case [ref][r] [short] [none][r2]", "SNAKE_CASE [REF][r] [SHORT][short] [NONE][R2]"),
    (r"| a | b \| c |", r"| A | B \| C |"),
    ("x *y*", "X *Y*"),
    ("item\n   more ~~and~~", "ITEM MORE ~~AND~~"),
    ("sub", "SUB"),
    ("Second", "SECOND"),
)


@pytest.mark.parametrize(
    "source", [PAGE, PAGE.replace("\n", "\r\n"), "\ufeff# T\n", "- x\n\ty", ""]
)
def test_a_page_whose_texts_stay_is_equal_to_the_byte(source):
    document = read_document("a.md", source.encode())
    assert document.write(unchanged(document)) == source.encode()


def test_only_texts_change():
    document = read_document("a.md", PAGE.encode())
    assert [text.marked.plain for text in document.texts] == TEXTS
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
    assert [text.marked.plain for text in document.texts] == [text]
    assert in_capitals(document).decode().lower() == written


def test_emphasis_around_nothing_goes_and_links_and_html_stay():
    document = read_document("a.md", b"A **~~b *c*~~ d** [e](f) *<b>g</b>* h")
    (text,) = document.texts
    emptied = TextTranslation("A", tuple(replace(tag, position=1) for tag in text.marked.tags))
    assert document.write([emptied]) == b"A[](f)*<b></b>*"


def words(text):
    return [match.span() for match in re.finditer(r"\S+", text)]


def translated(source, *outputs, suffix="md"):
    """A page whose texts become outputs, word by word in the same order."""
    document = read_document(f"a.{suffix}", source.encode())
    placed = []
    for text, output in zip(document.texts, outputs, strict=True):
        named, names = name_tags(text.marked)
        links = TokenLinks(words(named.plain), words(output), range(len(words(output))))
        placed.append(with_named_tags(place_tags(named, output, links), names))
    return document.write(placed).decode()


@pytest.mark.parametrize(
    ("source", "output", "written"),
    [
        ("Use the `open` command", "den {0} Befehl", None),
        ("Set `alpha`, `beta` and `gamma` now", "Stelle {0}, {1} und {2} ein", None),
        ("`a` or `b`", "oder", "`a` oder `b`"),
        ("Press `x` and close", "Drücke {0} und schließe", "Drücke `x` und schließe"),
        (
            "See ![a](b.png) `c` and [d](e)",
            "Siehe {0} {1} und da",
            "Siehe ![a](b.png) `c` und [da](e)",
        ),
        ("See [user guide] and [the log file][].", "Siehe Anleitung X und das Log da.", None),
        ("As noted[^1] here", "Wie gesagt hier", None),
        ("- [ ] do this", "tu das", "- [ ] tu das"),
        ("- [x] done that", "war das", "- [x] war das"),
        ("> [!NOTE]\n> look *here*", "sieh hier", "> [!NOTE]\n> sieh *hier*"),
        ("::: note\nlook here\n:::", "sieh hier", "::: note\nsieh hier\n:::"),
        ("{{% note %}}\nlook here\n{{% /note %}}", "sieh", "{{% note %}}\nsieh\n{{% /note %}}"),
        ("{% include x %}\nlook here", "sieh hier", "{% include x %}\nsieh hier"),
        ("a $x_1$ b costs $5 and $6", "y z kostet $5 und $6", None),
        ("## Title {#id}", "Titel", "## Titel {#id}"),
        ("- [ ] do this", "実行", "- [ ] 実行"),
        ("1. [x] **do** this", "做", "1. [x] **做**"),
        ("## Title {#id}", "标题", "## 标题 {#id}"),
        ("look here {: .a #b }", "見る", "見る {: .a #b }"),
        ("[^2]: look\n[a b]: <x y> 'T t'", "sieh", "[^2]: sieh\n[a b]: <x y> 'T t'"),
        ('look\n[a]: https://b.c "T t"', "看", '看\n[a]: https://b.c "T t"'),
        ("<B c={() => x('y')}>look</B>", "sieh", "<B c={() => x('y')}>sieh</B>"),
        ("look <B a={{b: 1}} /> here", "sieh {0} hier", "sieh <B a={{b: 1}} /> hier"),
        ('<p.B a="b" c={d > 1}>look</p.B>', "見る", '<p.B a="b" c={d > 1}>見る</p.B>'),
        ("look\n%% a note %%\n", "sieh", "sieh\n%% a note %%\n"),
        ("the _log file_", "das_Log", None),
        (
            "this is ==marked *so* now== ok",
            "das ist markiert so nun gut",
            "das ist ==markiert *so* nun== gut",
        ),
        ("H~2~O and x^2^ ++new++", "H2O und x2 neu", "H~2~O und x^2^ ++neu++"),
        ("look ~~here~~ ==now", "sieh da ==nun", "sieh ~~da~~ ==nun"),
        ("# a == b, c ++ d, ~ e ^ f", "a == b, c ++ d, ~ e ^ f", "# a == b, c ++ d, ~ e ^ f"),
        ("first\n\n$$\na\n$$\n", "erstens", "erstens\n\n$$\na\n$$\n"),
        ("!!! note\n    look here\n", "sieh hier", "!!! note\n    sieh hier\n"),
        ("look", "1986. Jahr", "1986\\. Jahr"),
        ("look", "- das *ist*", "\\- das \\*ist\\*"),
        ("# look", "1986. Jahr", "# 1986. Jahr"),
        ("look", "a*b", "a*b"),
        ("look", "", ""),
        ("look", "---", "\\---"),
        ("look", "[a]: b", "\\[a\\]: b"),
        ("# look", "", "# "),
    ],
)
def test_what_is_no_text_stays_what_it_is(source, output, written):
    definitions = "\n\n[user guide]: http://a\n[the log file]: http://b\n[^1]: 1"
    result = translated(source + definitions, output).removesuffix(definitions)
    if written is not None:
        assert result == written
    else:
        for part in re.findall(r"`[^`]*`(?:, `[^`]*`)?|\]\[[a-z ]+\]|\[\^1\]|\$x_1\$", source):
            assert part in result
        assert "``" not in result
        assert not re.search(r"\w`\w|\w`\w+`\w", result)


@pytest.mark.parametrize(
    "kept",
    [
        *("{: .note}", "{:toc}", "{.lead #top}"),
        "{% highlight rb %}\ndef a\n  b\n\n# c\nend\n{% endhighlight %}",
        "{% raw %}\n- a\n{% endraw %}",
        "{%- comment -%}\na\n\nb\n{%- endcomment -%}",
        *('=== "Tab"', '=== "Tab"\n    in it', "/// tab | Tab"),
        *('--8<-- "a.md"', ';--8<-- "a.md"', "-8<- 'a.md'"),
        *("::: a.b\n    options:\n      c: true", "::: a.b", ":::{note}"),
        *("import A from '@theme/A';", "import {\n  A,\n} from 'a';", "export const a = 1;"),
        *("[TOC]", "[[toc]]", "*[HTML]: Text", "{/* a comment */}", "![[a picture]]"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "> "])
def test_lines_that_are_no_prose_stay(kept, prefix):
    source = "".join(f"{prefix}{line}\n" for line in f"look\n\n{kept}\n\nhere".split("\n"))
    document = read_document("a.md", source.encode())
    assert [text.marked.plain for text in document.texts] == ["look", "here"]
    expected = source.replace("look", "LOOK").replace("here", "HERE")
    assert in_capitals(document).decode() == expected


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("look\n{: .note}", ["LOOK"]),
        ("[look]({{ '/a/' | relative_url }}) {{ 'a' | b: c, d }}", ["LOOK"]),
        ("look :material-check: :smile:{ .a } here :a:", ["LOOK", "HERE"]),
        ("look [[Other page]] here [[a|b c]] now", ["LOOK", "HERE", "NOW"]),
        ("{ref}`a b <c>` look :doc:`a` here", ["LOOK", "HERE"]),
        ("look [^a b] here[^1]: now [^2]", ["LOOK", "A B", "HERE", "NOW"]),
        ("| look {{ 'a' | b }} | here |\n|--|--|", []),  # for CommonMark, these are three cells
        ("| look {{ 'a' | b }} | here |\n|--|--|--|", ["HERE"]),
        ("| look | `<br>` now |\n|--|--|", ["LOOK", "NOW"]),
        ("look <img alt=\"A -> B\"> here <b title='>'>now</b>", ["LOOK", "HERE", "NOW"]),
        ("[look](foo(and(bar))) ![a](b(c(d(e)))) here", ["LOOK", "HERE"]),
        ("[look](a(\\(b)) [here](<a(b> 'c') [now](a(b)(c) \"d (e)\")", ["LOOK", "HERE", "NOW"]),
        ("look***here***now", ["LOOK", "HERE", "NOW"]),
        ("**look *here***now ~~***day***~~", ["LOOK", "HERE", "NOW", "DAY"]),
        ("look[^1]\n\n> [^1]: here\n\n[^2]: now", ["LOOK", "HERE", "NOW"]),
        ("look {/* a *b* c */} here {/* a\nb */} now", ["LOOK", "HERE", "NOW"]),
        ("look ![[a b]] here", ["LOOK", "HERE"]),
    ],
)
def test_parts_that_are_no_prose_stay(source, texts):
    expected = source
    for text in texts:
        expected = re.sub(rf"\b{text}\b", text, expected, count=1, flags=re.IGNORECASE)
    assert in_capitals(read_document("a.md", source.encode())).decode() == expected


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("!!! Note\n    dog\n", "!!! Note\n    DOG\n"),
        ('!!! note "note"\n    dog\n', '!!! note "NOTE"\n    DOG\n'),
        ("!!! info inline end\n    dog\n", "!!! info inline end\n    DOG\n"),
        ('!!! note " Padded "\n    dog\n', '!!! note " PADDED "\n    DOG\n'),
        ('??? tip "Kind "\n    dog\n', '??? tip "KIND "\n    DOG\n'),
        ('> ??? tip inline "end"\n', '> ??? tip inline "END"\n'),
        ("a[^dog]\n\n[^dog]: dog\n", "A[^dog]\n\n[^dog]: DOG\n"),
        ("| `a` a | a |\n|--|--|\n", "| `a` A | A |\n|--|--|\n"),
    ],
)
def test_a_text_is_found_behind_its_sign(source, written):
    assert in_capitals(read_document("a.md", source.encode())).decode() == written


@pytest.mark.parametrize("source", ["Save<br>open<br />it", "| a<BR/>b |\n|--|\n", "**a<br>b**\n"])
def test_a_break_stays_in_its_text(source):
    document = read_document("a.md", source.encode())
    (text,) = document.texts
    assert text.marked.plain in source
    written = document.write([TextTranslation(f"[x](y){text.marked.plain}")]).decode()
    assert re.findall("<[^>]*>", written) == re.findall("<[^>]*>", source)


@pytest.mark.parametrize(
    ("source", "output", "places", "written"),
    [
        ("**Warn!** Delete", "\u8b66\uff01\u524a", (0, 2), "**\u8b66\uff01** \u524a"),
        ("the _log_ file", "\u30ed\u30b0\u306e", (1, 2), "\u30ed _\u30b0_ \u306e"),
        ("the *log* file", "\u30ed\u30b0\u306e", (1, 2), "\u30ed*\u30b0*\u306e"),
        ("a **`b`c** d", "\u30ed\u30b0\u306e", (1, 1, 2), "\u30ed **`b`\u30b0**\u306e"),
        ("a __b__", "eins zwei", (0, 2), "__ei__ ns zwei"),
        ("a **`b`** c", "\u30ed\u30b0", (1,), "\u30ed **`b`** \u30b0"),
        ("a _`b`_, c", "\u30ed\u30b0", (1,), "\u30ed _`b`_ \u30b0"),
        ("**a** **b**", "\u30ed\u30b0", (0, 1, 1, 2), "**\u30ed** **\u30b0**"),
        ("a `x` **b** c", "eins  zwei", (5, 6, 10), "eins `x` **zwei**"),
        ("a `x` **b** c", "\u30ed\u30b0", (1, 1, 2), "\u30ed`x`**\u30b0**"),
        ("a ***b*** c", "\u30ed\u30b0\u306e", (1, 1, 2, 2), "\u30ed***\u30b0***\u306e"),
        ("a ***b*** c", "eins zwei", (0, 0, 2, 2), "***ei***ns zwei"),
        ("a ***b***", "\u8b66\uff01\u524a", (0, 0, 2, 2), "***\u8b66\uff01*** \u524a"),
    ],
)
def test_emphasis_is_written_so_that_it_is_emphasis(source, output, places, written):
    document = read_document("a.md", source.encode())
    (text,) = document.texts
    tags = [replace(tag, position=to) for tag, to in zip(text.marked.tags, places, strict=True)]
    assert document.write([TextTranslation(output, tuple(tags))]).decode() == written


@pytest.mark.parametrize("sign", ["---", "+++"])
def test_front_matter_stays(sign):
    source = f"{sign}\ntitle: a dog\n\nx = 1\n{sign}\n\nlook\n"
    assert translated(source, "sieh") == source.replace("look", "sieh")


YAML = """---
title: a dog
"description": "two  dogs: \\u00e9" # note
tags: [a cat, 'it''s a cat', 12]
summary: >
  some
  cats
draft: true
---
look
"""


def test_values_of_the_keys_of_front_matter_are_texts_where_asked():
    keys = ["title", "description", "tags", "summary", "draft"]
    document = read_document("a.md", YAML.encode(), keys)
    texts = ["a dog", "two  dogs: \u00e9", "a cat", "it's a cat", "some cats", "look"]
    assert [text.marked.plain.strip() for text in document.texts] == texts
    assert document.write(unchanged(document)).decode() == YAML
    loud = [replace(text, plain=f"{text.plain}: #1") for text in unchanged(document)]
    written = document.write(loud).decode()
    values = yaml.safe_load(written.split("---")[1])
    expected = yaml.safe_load(YAML.split("---")[1])
    assert values == {
        "title": "a dog: #1",
        "description": "two  dogs: \u00e9: #1",
        "tags": ["a cat: #1", "it's a cat: #1", 12],
        "summary": "some cats: #1\n",
        "draft": True,
    }
    assert list(values) == list(expected)
    assert '"two  dogs: \u00e9: #1" # note\n' in written
    assert written.endswith("---\nlook: #1\n")


@pytest.mark.parametrize("value", ["&x a dog", "!!str a dog", '&x !!str "a dog"'])
def test_anchors_of_front_matter_stay(value):
    source = f"---\na: {value}\nb: [{'*x' if '&' in value else 1}, a cat]\n---\n"
    written = in_capitals(read_document("a.md", source.encode(), ["a", "b"])).decode()
    assert written == source.replace("a dog", "A DOG").replace("a cat", "A CAT")


@pytest.mark.parametrize(
    "value", ["'a one\n\n  b two'", '"a one\n\n  b two"', "a one\n\n  b two", "|\n  a one\n  b two"]
)
def test_a_value_of_front_matter_in_lines_stays_a_value(value):
    document = read_document("a.md", f"---\ntitle: {value}\nx: 1\n---\n".encode(), ["title"])
    written = in_capitals(document).decode()
    front = yaml.safe_load(written.split("---")[1])
    assert (front["title"].rstrip(), front["x"]) == ("A ONE\nB TWO", 1)


@pytest.mark.parametrize(
    ("name", "source", "place"),
    [
        ("a.md", "---\na: b: c\n---\n", "line 2"),
        ("a.md", "---\na: b\nc: \x07d\n---\n", "line 3"),
        ("a.md", "---\na: |\n  b\n  \x1bd\n---\n", "line 4"),
        ("a.md", "+++\na = 1\n+++\n", "line 1"),
    ],
)
def test_front_matter_that_cannot_be_read_is_named(name, source, place):
    with pytest.raises(ValueError, match=place):
        read_document(name, source.encode(), ["a"])
    with pytest.raises(ValueError, match=r"a\.txt"):
        read_document("a.txt", source.encode(), ["a"])


BLOCKS = ["a dog", "runs *far* away", "**all `code`**", "[a b](c)", "`x`, `y`", "![i](j)", "_d_!"]
BLOCKS += ["1. one", "- [ ] x", "> q", "## h", "| a | b |\n|---|---|\n| c | `d` |", "```\nk\n```"]
BLOCKS += ["<b>x</b> y", "<div>\nz\n</div>", "a  \nb", "$m$ of n[^1]", "[^1]: note", "$5 or *6*"]
"""Blocks, and the texts of a paragraph."""


@given(st.lists(st.tuples(st.sampled_from(BLOCKS), st.sampled_from([" ", "\n", "\n\n"]))))
def test_random_pages_keep_their_structure(parts):
    source = "".join(block + space for block, space in parts)
    document = read_document("a.md", source.encode())
    assert document.write(unchanged(document)).decode() == source
    assert tree(in_capitals(document).decode()) == tree(source)


def tree(source):
    """What a page has besides its texts."""
    found = []
    for token in MarkdownIt("commonmark").enable("table").use(footnote_plugin).parse(source):
        found.append((token.type, token.tag, token.content if token.tag == "code" else ""))
        children = [
            (child.type, str(child.attrs), child.type == "code_inline" and child.content)
            for child in token.children or ()
            if child.type not in ("text", "softbreak", "text_special", "image")
        ]
        found.append(sorted(children))
    return found
