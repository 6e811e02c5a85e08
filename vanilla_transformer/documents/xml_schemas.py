"""Kinds of files of XML: which elements hold a text, and which elements within it parts of it.

All other elements stay as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class XmlSchema:
    r"""The elements of a kind of file, by their names without prefixes.

    Attributes:
        blocks: Elements that hold a text each; "a/b": elements `b` in an `a`.
        root: The outermost element. "": it may be any.
        members: Pattern of the names of the XML files in a zip file.
        main: Name of a member that such a file cannot lack; * stands for any characters.
        inline: Elements that hold a part of a text. All others in a block are tags without text.
        breaks: Elements, or kinds of them, that are line breaks or tabs in a text.
        characters: Elements that stand for characters of a text.
        run: The element around characters of the same properties `rPr`, which are in its `t`.
        run_text: The start tag of such a `t`, without its prefix.
        lines: Pattern of characters that part a text; other line breaks are spaces.
        fixed: Elements in which nothing is translated.
        fixed_if: Patterns of attributes' values by name: elements with one are fixed, too.
        fixed_texts: Pattern of texts that stay.
        comparing: Pattern of the members of a zip file that compare with texts.
        names: Pattern of names and formulas in them; a text that equals one, or is in one, stays.
        target: The element that holds the translation of the `source` beside it.
        languages: The elements that name the language of the translations, each with its attribute
            for it and the begin of its version. The first one in a file gets the language.
        flags: The flags of gettext that all texts have.
        has_accelerators: Whether texts may have accelerators.
        escapes: Whether texts have escapes of Android, such as `\n`.
    """

    blocks: frozenset[str]
    root: str = ""
    members: str = ""
    main: str = ""
    inline: frozenset[str] = frozenset()
    breaks: frozenset[str] = frozenset()
    characters: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    run_text: str = "t"
    lines: str = r"\t"
    fixed: frozenset[str] = frozenset()
    fixed_if: Mapping[str, str] = field(default_factory=dict)
    fixed_texts: str = "(?!)"
    comparing: str = "(?!)"
    names: str = ""
    target: str = ""
    languages: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    has_accelerators: bool = False
    escapes: bool = False


_INLINE_OF_ANDROID = frozenset(
    "a annotation b big em font i s small span strike strong sub sup u".split()  # noqa: SIM905
)
_ATTRIBUTES = r"""(?:[^>"']|"[^"]*"|'[^']*')*?"""  # in the start tag of an element
_ANY_LINE = r"\t|\r\n?|\n"
SCHEMAS = {
    ".docx": XmlSchema(
        members=r"word/(?:document\d*|header\d*|footer\d*|footnotes|endnotes)\.xml",
        main="word/document*.xml",
        blocks=frozenset({"p"}),
        inline=frozenset({"hyperlink", "ins", "moveTo", "sdt", "sdtContent", "smartTag"}),
        breaks=frozenset({"br", "cr", "tab"}),
        characters={"noBreakHyphen": "-", "softHyphen": ""},
        run="r",
        run_text='t xml:space="preserve"',
    ),
    ".pptx": XmlSchema(
        members=r"ppt/(?:slides|notesSlides|diagrams|charts)/[^/]+\.xml",
        main="ppt/slides/*.xml",
        blocks=frozenset({"p"}),
        breaks=frozenset({"br"}),
        run="r",
    ),
    ".xlsx": XmlSchema(
        members=r"xl/(?:sharedStrings|worksheets/[^/]+)\.xml",
        main="xl/worksheets/*.xml",
        blocks=frozenset({"is", "is/t", "si", "si/t"}),
        run="r",
        run_text='t xml:space="preserve"',
        lines=f"_x000D_(?:{_ANY_LINE})?|{_ANY_LINE}",
        comparing=r"xl/(?:workbook|(?:pivotCache|tables|worksheets)/[^/]+)\.xml",
        names=(
            rf"""<(?:tableColumn|cacheField)\s{_ATTRIBUTES}\bname=["']([^"']*)"""
            rf"""|<\w*[fF]ilter\s{_ATTRIBUTES}\bval=["']([^"']*)"""
            rf"|<(?:\w+:)?(?:f|\w*[fF]ormula\d?|definedName)(?:\s{_ATTRIBUTES})?>([^<]+)<"
        ),
    ),
    ".odt": XmlSchema(
        members=r"content\.xml|styles\.xml",
        main="content.xml",
        blocks=frozenset({"h", "p"}),
        inline=frozenset({"a", "meta", "span"}),
        breaks=frozenset({"line-break", "tab"}),
        fixed=frozenset({"annotation", "tracked-changes"}),
    ),
    ".epub": XmlSchema(members=r".*\.(?:x?html?|ncx)", main="*.*htm*", blocks=frozenset()),
    ".xlf": XmlSchema(
        root="xliff",
        blocks=frozenset({"segment", "trans-unit"}),
        inline=frozenset({"g", "mrk", "pc"}),
        breaks=frozenset({"lb", "xlf:lb"}),
        lines=_ANY_LINE,
        fixed_if={"translate": "no"},
        target="target",
        languages={"xliff": ("trgLang", "2"), "file": ("target-language", "")},
    ),
    ".ts": XmlSchema(  # of Qt
        root="TS",
        blocks=frozenset({"message"}),
        lines=_ANY_LINE,
        target="translation",
        languages={"TS": ("language", "")},
        flags=frozenset({"qt-format"}),
        has_accelerators=True,
    ),
    ".resx": XmlSchema(  # of .NET
        root="root",
        blocks=frozenset({"data/value"}),
        lines=_ANY_LINE,
        fixed_if={"type": ".+", "mimetype": ".+", "name": r"(?:>|&gt;){2}.*"},
        has_accelerators=True,
    ),
    ".xml": XmlSchema(  # of Android
        root="resources",
        blocks=frozenset({"plurals/item", "string", "string-array/item"}),
        inline=_INLINE_OF_ANDROID,
        breaks=frozenset({"br"}),
        fixed_if={"translatable": "false"},
        fixed_texts=r"[@?](?:[\w.]+:)?\w+/[\w.]+",
        flags=frozenset({"numbered-format"}),
        escapes=True,
    ),
}
"""The schemas by the ends of names of files; zip files have members."""
SCHEMAS |= {".odp": SCHEMAS[".odt"], ".xliff": SCHEMAS[".xlf"]}
