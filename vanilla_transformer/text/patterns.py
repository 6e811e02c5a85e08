"""Code in texts, in one table of patterns: placeholders, addresses, paths, options, emoji."""

import html
import unicodedata
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import regex

from vanilla_transformer.text.edits import Span
from vanilla_transformer.text.printf import FLAGS, SIZE

# Letters of other scripts may touch a part, as in 文件%s无法保存: its own words are Latin.
_WORD = r"\p{Latin}\p{N}_"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_CONVERSIONS = "diouxXeEfFgGcspn@"
# A plural of Xcode, and a macro of C.
_NAMED = rf"%(?:\d+\$)?(?:#@{_NAME}@|[-+#0]*\d*<PRI[diouxX]\w+>)"
# A directive of strftime is % and these; a pattern of dates of Java and .NET repeats letters.
_DATE = "[-_]?[aAbBcdDeFgGhHIjklmMpPrRsSTuUVwWxXyYzZ]"
_DATE_LETTERS = "(?:y{2,4}|M{1,4}|dd?|HH?|hh?|mm|ss)"
_CONVERSIONS_OF_C = "diouxXeEfFgGaAcrspnm"
_SEGMENT = rf"[{_WORD}.+@*-]"
_AFTER_SPACE = r"(?<![\p{Sc}\p{N}%-]\s)(?<![^\s\p{Cf}\p{Ps}\p{Pi}\"'`=:>])"  # not: 5 € /month
_OPTION = "--[a-z][a-z0-9_-]*"
# Signs of prose about a command line: without one of them, "--" before a word may be a dash.
OPTIONS = regex.compile(
    r"--[a-z][a-z0-9]*(?:[-_][a-z0-9]|\[?=)"  # --no-keep, --file=
    rf"|{_OPTION}\s+[<\[%A-Z]{{2,}}|{_OPTION}[)\]'\"`\p{{Pf}}|<]"  # --file FILE, „--all“
    r"|(?<![^\s\p{Ps}|])-[A-Za-z](?:[,|\]=]|\s+--)"  # -f, --force
    r"|\w://|%[(\d$]*[sd]|\$\{|\{\w*\}|(?<!\S)(?:~|\.\.?)?/[a-z]"  # other code: %s, ~/file
    r"|(?i:\b(?:use|using|with|without|specify|try|run|see|add|pass|give)\s+--[A-Za-z]"
    # "option", "argument", "command" in several languages
    r"|option|opci|opç|opzion|opti|argument|param|flag|switch|schalter|command|comando|befehl"
    r"|опци|параметр|команд|ключ|选项|選項|参数|參數|命令|オプション|引数|コマンド|옵션|명령|خيار|विकल्प|seçene)"
)


def _is_counted(part: str, text: str, parts: Collection[str]) -> bool:
    """Returns whether a text has placeholders of all numbers from 1 to that of this part."""
    numbers = range(1, int(part.lstrip("%L$")) + 1)
    return {part.rstrip("0123456789") + str(number) for number in numbers}.issubset(parts)


def _is_variable(part: str, text: str, parts: Collection[str]) -> bool:
    """Returns whether a part is no currency beside a number, as in `20 millions $US`."""
    sign = regex.escape(part)
    amount = rf"\d\s?(?:\p{{L}}+\.?\s){{0,2}}{sign}(?!\w)|(?<!\w){sign}\s?\d"
    return not (part[1:].isupper() and len(part) <= 4 and regex.search(amount, text))


def is_symbol(reference: str, *_: Any) -> bool:
    """Returns whether a reference, in any place, is for a symbol, no letter or quotation mark."""
    sign = html.unescape(reference)
    kind = unicodedata.category(sign) if len(sign) == 1 else ""
    return kind.startswith("S") or (kind == "Po" and sign not in "'\"")


def _is_about_command_line(part: str, text: str, parts: Collection[str]) -> bool:
    """Returns whether a text is about a command line: in other prose, `--` may be a dash."""
    return OPTIONS.search(text) is not None


class Pattern(NamedTuple):
    """A pattern of parts of one kind, which stay as they are in a translation.

    Attributes:
        kind: "placeholder", "code", "address", "path", "option" or "emoji".
        signs: Each part has one of them. Empty: it need not.
        expression: The regular expression of a part.
        examples: Examples of such parts.
        lookalikes: Similar texts without such a part.
        is_code: Takes a part, its text and all matches there; tells if it is code. None: it is.
    """

    kind: str
    signs: tuple[str, ...]
    expression: str
    examples: str = ""
    lookalikes: str = ""
    is_code: Callable[[str, str, Collection[str]], bool] | None = None

    @property
    def is_unambiguous(self) -> bool:
        """Whether no prose matches: a part that an output invents is taken out."""
        return self.kind == "placeholder" and self.is_code is None

    @property
    def may_not_repeat(self) -> bool:
        """Whether no translation has a part more often than its source; it may repeat `$1`."""
        return self.is_unambiguous or self.kind in ("path", "option", "emoji")

    def is_invented(self, part: str, source: str, of_source: Collection["Pattern"]) -> bool:
        """Returns whether an output invented a part, by the patterns of the parts `of_source`."""
        if self.is_unambiguous:
            return True
        if self.kind != "placeholder" or self not in of_source:
            return False
        number = regex.search(r"\d+$", part)  # %2 may be the 2% of the source, as in Turkish
        return not (number and regex.search(rf"(?<![\d%$]){number[0]}(?!\d)", source))


_placeholder = partial(Pattern, "placeholder")
_code = partial(Pattern, "code")
PATTERNS: Sequence[Pattern] = (
    _placeholder(("<ph",), r"<ph\d>", examples="<ph1>", lookalikes="<phone>"),  # Stand-ins
    Pattern(  # Addresses of the web and of mail
        "address",
        ("://", "@", "mailto:", "www.", "tel:"),
        r"(?<![a-z0-9+.-])(?:[a-z][a-z0-9+.-]*://|mailto:|www\.(?=[\w-]+\.))"  # the beginning
        r"(?:(?!&(?:[gl]t|quot);)[!#-&(-;=?-~\p{Latin}])+(?<![.,;:!?)\]])"  # the rest, no last sign
        rf"|[{_WORD}.+-]+@[{_WORD}-]+(?:\.[{_WORD}-]+)+"  # me@a.org
        r"|(?<!\w)tel:\+?\d[\d-]*",
        examples="https://a.org/b?c=d me@a.org www.example.org mailto:me@a.org",
        lookalikes="www is the web; a @ b",
    ),
    _placeholder(  # Templates: Mustache, Liquid, ERB, shortcodes
        ("{{", "{%", "<%", '="'),
        r"\{\{\{[^{}]*\}\}\}"  # {{{name}}}
        r"|\{\{-?\s*[#/^>&]?\s*[\w.\[\]]+(?:\([^(){}]*\))?"  # {{name, and then any of
        r"(?:\s*\|\s*\w+(?::\s*(?:'[^'{}]*'|\"[^\"{}]*\"|[\d.]+)|\([^(){}]*\))?"  # a filter
        r"|,\s*\w+(?:\([^(){}]*\))?|\s+[\w.]+)*"  # a format, or another name
        r"\s*-?\}\}"
        r"|\{%[^{}%]+%\}|(?<!%)<%[^<>%]+%>"  # {% if x %} <%= x %>
        r"|\[[a-z][\w-]*(?:\s+[\w-]+=\"[^\"\[\]]*\")+\s*/?\]",  # [shortcode name="x"]
        examples="{{ x | upper }} {% if x %} <%= x %> {{count, number}}",
        lookalikes="{{GENDER:|he|she}}",
    ),
    _placeholder(  # Placeholders with a name: Python, Ruby, make, Windows, Vue
        ("%", "$(", "$t(", "@"),
        rf"%\({_NAME}\)[-+#0]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]"  # %(name)s of Python
        rf"|%<{_NAME}>[-+#0]*\d*(?:\.\d+)?[diouxXeEfFgGs]|%\{{{_NAME}\}}"  # %<name>s of Ruby
        rf"|%[A-Z][A-Z0-9_]+%|\$\({_NAME}\)|\$t\([^()]+\)|@[A-Z][A-Z0-9_]*@"
        rf"|(?<![{_WORD}%])%(?!(?:hh?|ll?|z)[diux]%)[a-z][A-Za-z0-9_]+%(?![{_WORD}%$])"  # %name%
        rf"|(?<![{_WORD}])@(?:\.\w+)?:{_NAME}(?:\.\w+)*",  # @:a.b of Vue
        examples="%(name)s %<name>s %{name} %PATH% %name% $(NAME) $t(a.b) @:a.b @NAME@",
        lookalikes="50 %(about) of them, 5 %<br>, from 5% to 10%, $(5), a@b",
    ),
    _placeholder(  # Placeholders in braces: Python, C#, ICU, Java
        ("{",),
        r"[$#]\{[^{}\s<>]+\}"  # ${x} #{x}
        r"|(?<!\{|[\\@]\w+(?:\{[^{}]*\})*)"  # but not after a command of TeX
        r"\{\$?(?:[A-Za-z_0-9][\w.\[\]]*|(?=[!:}]))(?:![rsa])?"  # {name!r, and then one of
        r"(?::(?:[^{}\s]|\{[\w.]*\})+(?: [%#0yMdHhmst][^{}\s]*)*"  # a format: {x:>10}
        r"|,\s*-?\d+(?::[^{}\s]+)?"  # a width of C#: {0,10}
        r"|,\s*(?:number|date|time|spellout|ordinal|duration)(?:,[^{}]*)?"  # a type of ICU
        r"|,\s*choice,(?:[^{}]|\{[^{}]*\})*)?\}(?!\})"  # a choice of Java
        r"|'[{}]+'",
        examples="{0} {name!r:>10} {0:#,##0.00} {d, date} {0, choice, 0#no|1<{0}} {a:{b}} ${x} '{'",
        lookalikes="{a, b}, {see above}",
    ),
    _code(  # Dates of strftime: two directives or more
        ("%",),
        rf"(?<!\d\s?)(?=(?:[:-]?%{_DATE})*[:-]?%[-_]?[^{_CONVERSIONS}])"  # one is not of printf
        rf"%{_DATE}(?:[:-]%{_DATE})+(?![{_WORD}])",
        examples="%H:%M:%S %Y-%m-%d",
        lookalikes="from 5%-10%",
    ),
    _placeholder(  # Placeholders of printf
        ("%",),
        rf"{_NAMED}|(?<!%)%%(?:\d+\$)?[sd]"
        r"|(?:(?<!%)%%(?=%)|(?<!(?<!%)%))"  # a percent sign before a placeholder, which is one of
        rf"%(?:\d+\${FLAGS}{SIZE}[{_CONVERSIONS}]"  # %1$s
        rf"|(?![1-9]\d*e|[1-9]\d+[iou]){FLAGS}{SIZE}[{_CONVERSIONS}](?![{_WORD}])"  # %s, not %50i
        rf"|(?<!\d\s?%){FLAGS}(?:{SIZE}s(?=\p{{Latin}})"  # %s before a word
        rf"|[du](?=\p{{Latin}}{{1,3}}(?![{_WORD}]))))"  # %d before a unit: %dpx
        r"(?:\s?%%)?|(?<!%)%%(?!%)",
        examples="%s %1$d %.1f%% %'d %*d %dpx 50%% %2$#@files@",
        lookalikes="100 % der, 5% discount, %50i, %12e kadar",
    ),
    _placeholder(  # Numbered placeholders of Qt
        ("%",),
        rf"%L?[1-9]\d?(?![{_WORD}]|[.,]\d)(?<!\d%\d{{1,2}})",
        examples="%1 of %2",
        lookalikes="%50 indirim",
        is_code=_is_counted,
    ),
    _placeholder(  # Numbered placeholders with a dollar sign
        ("$",),
        rf"(?<![\p{{Latin}}_])\$[1-9](?![{_WORD}]|[.,]\d)",
        examples="$1 by $2",
        lookalikes="It costs $5.",
        is_code=_is_counted,
    ),
    _placeholder(  # Variables of a shell, of PHP and of Perl
        ("$",),
        rf"(?<![\p{{Latin}}_])\${_NAME}(?:\.{_NAME})*(?:\$(?!\w))?",
        examples="$name $NAME$",
        lookalikes="100 $CAN, US$ 5, CAN$100",
        is_code=_is_variable,
    ),
    _code(  # One directive of strftime
        ("%",), rf"(?<!\d\s?)%{_DATE}(?![{_WORD}])", examples="%B %Y", lookalikes="5 %A, 100 %M"
    ),
    _code(  # References of HTML to a symbol
        ("&",),
        r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});",
        examples="&amp; &#8230;",
        lookalikes="R&D; rock&roll; caf&eacute;",
        is_code=is_symbol,
    ),
    _code(  # Colours, hexadecimal numbers, and names such as __init__
        ("#", "0x", "0X", "__"),
        r"(?<![\w&])#(?:(?=[a-fA-F]*\d|[fF]{6})(?:[0-9a-fA-F]{8}|[0-9a-fA-F]{6})"  # a colour
        r"|(?=\d*[a-fA-F])(?=[a-fA-F]*\d)[0-9a-fA-F]{3})(?!\w)"  # or one of three digits
        r"|(?<!\w)(?:0[xX][0-9a-fA-F]+|__[A-Za-z0-9]\w*__)(?!\w)",
        examples="#ff8800 0x1F __name__",
        lookalikes="#decade, no. #12, __very important__",
    ),
    _code(  # Patterns of dates of Java and .NET
        ("M", "HH", ":mm"),
        r"(?<!\w)(?=[\w:./-]*(?:MM|HH|:mm|M[-/.](?:yy|d)|yy[-/.]M))"
        rf"{_DATE_LETTERS}(?:[-/.:]{_DATE_LETTERS})+(?!\w)",
        examples="yyyy-MM-dd HH:mm",
        lookalikes="yyyy-mm-dd, 5 m/s, MM",
    ),
    Pattern(  # Paths
        "path",
        ("/", ":\\"),
        rf"(?<![{_WORD}/<.)\]}}%~])(?:"
        rf"(?:~|\.\.?)/(?=[\p{{Latin}}_.]){_SEGMENT}+(?:/{_SEGMENT}*)*"  # ~/x.txt
        r"|/(?:bin|boot|dev|etc|lib(?:32|64)?|mnt|opt|proc|sbin|srv|sys|tmp|usr|var)"
        rf"(?![{_WORD}-])(?:/{_SEGMENT}*)*"  # /etc, /etc/hosts
        r"|/(?:home|lost\+found|media|root|run|Applications|Library|System|Users|Volumes)"
        rf"(?:/{_SEGMENT}*)+"  # /home/me, but not /home
        rf"|{_AFTER_SPACE}(?:/{_SEGMENT}+)+"  # others, with an ending or a slash at the end
        rf"(?:/{_SEGMENT}*\.[a-z]\w{{0,4}}(?!\w)|/(?!\w))"
        rf"|{_AFTER_SPACE}/[a-z](?:[a-z0-9_+@-]{{3,}}|[a-z0-9_-]*/{_SEGMENT}+)(?:/{_SEGMENT}*)*"
        r"(?![\w-]|['\u2019]\p{L}))(?<!\.)"  # others in small letters
        rf"|(?<!\w)[A-Za-z]:\\{_SEGMENT}*(?:\\{_SEGMENT}*)*(?<!\.)",  # C:\\Users
        examples="/etc/hosts ~/x.txt ./run.sh /my/own.conf C:\\Users\\x",
        lookalikes="10 €/Monat, 2 %/Jahr, ПК/Mac, 苹果/Android, (in)/Chef, 5 € /month, and /or",
    ),
    Pattern(  # Hosts, names of files and modules, and masks such as *.txt
        "address",
        (".", "*"),
        rf"(?<![{_WORD}.@/\\-])(?:(?:[{_WORD}-]{{2,}}\.|(?:[{_WORD}-]+\.){{2,}})[a-z]{{2,}}"
        rf"(?!@|-?[{_WORD}]|\.[{_WORD}])|\*(?:\.[{_WORD}*?]+)+)"  # example.org, or *.txt
        r"|(?<=\()\*(?=\))",
        examples="mail.example.org setup.py os.path *.tar.gz (*)",
        lookalikes="end.Start, 3.5, U.S., 2 * 3",
    ),
    # With one underscore, it may be a word of a label whose letter of the keyboard has a mark.
    _code(  # Names of programs: camelCase, SNAKE_CASE, SHA256
        (),
        rf"(?<![{_WORD}.@/\\-])(?:[a-z]+(?:[A-Z][a-z0-9]+)+"  # lineWidth
        r"|(?=[A-Za-z._]*\d|[A-Z._]{4,}+(?![a-z])|[A-Za-z.]*_[A-Za-z.]*_)"
        r"[A-Za-z][A-Za-z0-9.]*_[A-Za-z0-9._]*[A-Za-z0-9]"  # LC_ALL, is_a_file
        r"|[A-Z]+\d[A-Z0-9]*)"  # SHA256
        rf"(?![{_WORD}@/\\-]|\.[{_WORD}])",
        examples="lineWidth LC_ALL is_a_file mail_8bit media.na_10x11_10x11in SHA256 A4",
        lookalikes="c_ustom, O_K, Zoom_In, JavaScript, McDonald, _all_of_it_, 10_000, 2ND, DEBUG",
    ),
    Pattern(  # Options of a command line
        "option",
        ("--",),
        rf"(?<![^\s\p{{Cf}}\p{{Ps}}\p{{Pi}}\"'`|,/>=]){_OPTION}(?<!-)",
        examples="Use --force",
        lookalikes="--then he left",
        is_code=_is_about_command_line,
    ),
    Pattern(  # Emoji
        "emoji",
        (),
        r"(?:\p{Regional_Indicator}{2}|\p{Emoji_Presentation}|\p{Emoji}\uFE0F)"  # and then signs
        r"(?:[\p{Emoji_Modifier}\uFE0F\u20E3\U000E0020-\U000E007F]|\u200D\p{Emoji})*",
        examples="😊 👩‍💻 ❤️",
        lookalikes="1 ©",
    ),
)
"""All patterns; where two parts overlap, the part of the earlier pattern counts."""


def _placeholders_by_flag(space: str) -> dict[str, str]:
    """Returns the expressions of placeholders by the flags of messages, such as "c".

    With these flags each placeholder counts, also where it looks like prose. `space` is " " if
    `% d` is a placeholder, or "".
    """
    printf = (  # "% d files" has a placeholder, "50% off" and "50% y" have none
        rf"{_NAMED}|(?:%%(?=%[^%]))?%(?! (?:\p{{Latin}}{{2}}|[^{_CONVERSIONS_OF_C}\P{{Latin}}]))"
        rf"(?:\d+\$|\[\d+\])?(?:[-+{space}#0'I]|'[^\w\s%'](?=\d))*"  # a number and flags
        rf"(?:q[+#]*)?{SIZE}Z?(?:[a-zA-Z@]|<\w+>)(?:\s?%%)?|%%"
    )
    braces = r"\{\{[^{}]*\}\}|\{\{|\}\}|\{(?:[^{}]|\{[^{}]*\})*\}"
    of_lisp = r"~(?:[+-]?\d+|'.|[vV#]|,)*+[:@]*+(?:/[^/\s]*/|[^\W\d]|[^\w\s/])"
    like_c = "awk d elisp go javascript librep lua modula2 sh-printf tcl"
    return {
        **dict.fromkeys(("c", "objc", "perl", "php"), printf),
        **dict.fromkeys(like_c.split(), rf"(?!(?<=\d)% )(?:{printf})"),
        "python": rf"%\({_NAME}\)[-+{space}#0]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]|{printf}",
        **dict.fromkeys(("gcc-internal", "gfc-internal"), rf"%[<>'{{}}]|{printf}"),
        "java-printf": rf"%(?:\d+\$|<)?[-+{space}#0,(]*\d*(?:\.\d+)?(?:[tT]?[a-zA-Z])|%%",
        "boost": rf"%\d+%|%\|[^|\s]+\||{printf}",
        "object-pascal": r"%(?:(?:\d+|\*)?:)?-?(?:\d+|\*)?(?:\.(?:\d+|\*))?[a-zA-Z]|%%",
        **dict.fromkeys(("qt", "qt-plural"), r"%L?\d{1,2}|%L?n(?!\w)"),
        **dict.fromkeys(("kde", "kde-kuit"), r"%\d{1,2}"),
        **dict.fromkeys(("smalltalk", "ycp"), r"%\d|%%"),
        **dict.fromkeys(("csharp", "java", "python-brace", "rust"), braces),
        "sh": rf"\$(?:{_NAME}|\{{[^{{}}]*\}})",
        **dict.fromkeys(("lisp", "scheme"), of_lisp),
    }


@cache
def _patterns_for(flags: frozenset[str], has_space: bool) -> tuple[list[Pattern], list[str]]:
    """Returns the patterns of a message with flags of gettext, and the expressions to leave out.

    If `has_space`, `% d` counts as a placeholder.
    """
    names = {flag.removesuffix("-format") for flag in flags if flag.endswith("-format")}
    known = _placeholders_by_flag(" " if has_space else "")
    own = [_placeholder((), expression) for name, expression in known.items() if name in names]
    refused = [known[name[3:]] for name in names if name[:3] == "no-" and name[3:] in known]
    of_dates = rf"%[-_]?[^{_CONVERSIONS_OF_C}\W\d]"  # %B is of dates alone
    return [*own, *PATTERNS], [rf"(?:{other})(?<!{of_dates})" for other in refused]


@cache
def _compiled(expression: str) -> Any:
    return regex.compile(expression)


def find_patterns(
    text: str,
    source_parts: Collection[str] | None = None,
    kind: str | None = None,
    flags: frozenset[str] = frozenset(),
) -> list[tuple[Span, Pattern]]:
    """Returns the spans of the parts of a text that look like code, in order, and their patterns.

    Args:
        source_parts: Parts of the source of the text, which count in every place. `% d` counts as
            a placeholder only if one of them is like it. None: the text is a source.
        kind: Parts of this kind only. None: of any kind.
        flags: The flags of gettext that a message has, such as `c-format` and `no-c-format`.
    """
    found: list[tuple[Span, Pattern]] = []
    taken: set[int] = set()
    has_space = source_parts is None or any("% " in part for part in source_parts)
    source_parts = source_parts or ()
    patterns, refused = _patterns_for(flags, has_space)
    for pattern in patterns:
        may_match = not pattern.signs or any(map(text.__contains__, pattern.signs))
        if not may_match or kind not in (None, pattern.kind):
            continue
        others = refused if refused and pattern in PATTERNS else ()  # a flag's own ones stay
        spans = [
            span
            for match in _compiled(pattern.expression).finditer(text)
            if taken.isdisjoint(range(*(span := match.span())))
            and not any(_compiled(other).fullmatch(text, *span) for other in others)
        ]
        parts = {text[slice(*span)] for span in spans}
        for span in spans:
            part = text[slice(*span)]
            if not pattern.is_code or part in source_parts or pattern.is_code(part, text, parts):
                found.append((span, pattern))
                taken.update(range(*span))
    return sorted(found, key=lambda pair: pair[0])


def pattern_of(part: str, flags: frozenset[str] = frozenset()) -> Pattern | None:
    """Returns the pattern that matches the whole of a text, which may have flags, or None."""
    patterns, _ = _patterns_for(flags, has_space=True)
    return next((one for one in patterns if _compiled(one.expression).fullmatch(part)), None)


def is_written_out(part: str, output: str) -> bool:
    """Returns whether an output has © for the reference `&copy;`; `<`, `>` and `&` do not count."""
    sign = html.unescape(part)
    return sign not in (part, "&", "<", ">") and sign in output


def is_part_at(part: str, text: str, position: int) -> bool:
    """Returns whether a text has this part at a position, and no longer part or word."""
    end = position + len(part)
    if part[-1:].isalpha() and regex.compile(r"\p{Latin}{4}").match(text, end):
        return False
    return any(span == (position, end) for span, _ in find_patterns(text, [part]))
