"""Placeholders, addresses and emoji come back into a translation, once and at their place."""

import sys

import pytest
import regex

from vanilla_transformer.inference.options import compile_patterns
from vanilla_transformer.text.edits import Edit, apply_edits
from vanilla_transformer.text.kept import Copies, kept_spans
from vanilla_transformer.text.patterns import PATTERNS, find_patterns
from vanilla_transformer.text.percent_signs import edits_to_add_percents, edits_to_double_percents
from vanilla_transformer.text.printf import edits_to_number
from vanilla_transformer.text.restoring import edits_to_restore
from vanilla_transformer.text.token_links import TokenLinks


def texts_of(text):
    return [text[slice(*span)] for span in kept_spans(text)]


def words(text):
    return [match.span() for match in regex.finditer(r"\S+", text)]


def repaired(source, output, aligned):
    """Repairs an output whose words are aligned with those of the source."""
    spans = kept_spans(source)
    links = TokenLinks(words(source), words(output), aligned)
    result = apply_edits(output, edits_to_restore(Copies.find(source, spans, output), links))
    assert Copies.find(source, spans, result).are_right
    return result


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("The file %s has %1$d of %(total)s parts.", ["%s", "%1$d", "%(total)s"]),
        ("%1 of %2", ["%1", "%2"]),
        ("文件%s无法保存\uff0c%1个{0}\uff0c$1个$name的", ["%s", "%1", "{0}", "$1", "$name"]),
        ("参阅https://a.org/b详细", ["https://a.org/b"]),
        ("写信给me@a.org吧\uff0c打开/etc/hosts\u3002", ["me@a.org", "/etc/hosts"]),
        ("%s%d%%", ["%s", "%d%%"]),
        ("{0} and {name}, ${x}, {{ y }}, $1", ["{0}", "{name}", "${x}", "{{ y }}", "$1"]),
        ("100% sure, 50 % of it, 5% discount, $5.00", []),
        ("See https://a.org/b?c=d. Or me@a.org!", ["https://a.org/b?c=d", "me@a.org"]),
        ("Open /etc/hosts or ~/x.txt with --force", ["/etc/hosts", "~/x.txt", "--force"]),
        ("options (--force, „--all“)", ["--force", "--all"]),
        ("and/or, 24/7, a - b, well--known", []),
        ("Hi 😊 👩‍💻 ❤️ 1 ©", ["😊", "👩‍💻", "❤️"]),
        ("</b> <a/>", []),
        ("At {{d, date(year: 2; x: y)}}", ["{{d, date(year: 2; x: y)}}"]),
        ("{{n, number(x)}}, {{n, a, b(c)}}", ["{{n, number(x)}}", "{{n, a, b(c)}}"]),
        ('Use [gallery id="3" a-b="c d"] or [x]', ['[gallery id="3" a-b="c d"]']),
        ('See [it="3", [a b="c"](d) and [A b="c"]', ['[a b="c"]']),
        ("{0}{1} 😊😊 🇩🇪🇫🇷 1️⃣", ["{0}", "{1}", "😊", "😊", "🇩🇪", "🇫🇷", "1️⃣"]),
    ],
)  # fmt: skip
def test_what_is_kept(text, spans):
    assert texts_of(text) == spans


@pytest.mark.parametrize(
    ("source", "output", "aligned", "result"),
    [
        ("Open %s now", "Öffne %s jetzt", [0, 1, 2], "Öffne %s jetzt"),
        ("Open %s now", "Öffne %d jetzt", [0, 1, 2], "Öffne %s jetzt"),
        ("Open %s now", "Öffne jetzt", [0, 2], "Öffne %s jetzt"),
        ("Use v%.1f now", "Nutze v%d jetzt", [0, 1, 2], "Nutze v%.1f jetzt"),
        ("Open %s now", "Jetzt öffnen", [2, 0], "Jetzt öffnen %s"),
        ("Open %1$s now", "Öffne % 1 $s jetzt", [0, 1, 1, 1, 2], "Öffne %1$s jetzt"),
        ("Open %s now", "Öffne %s %s jetzt", [0, 1, 1, 2], "Öffne %s jetzt"),
        ("%s and %s", "%s und", [0, 1], "%s und %s"),
        ("%d files", "Dateien", [1], "%d Dateien"),
        ("%s it sees", "seesit", [1], "%s seesit"),
        ("Hello 😊 you", "Hallo du", [0, 2], "Hallo 😊 du"),
        ("Hello you 😊", "Hallo du", [0, 1], "Hallo du 😊"),
        ("Open %s", "{x} öffnen", [0, 0], "%s öffnen"),
        ("%s with --force", "", [], "%s --force"),
        ("Note 😊: a b", "Hinweis: ein Be", [0, 2, 3], "Hinweis: 😊 ein Be"),
        ("{0}{1} parts", "{0}{1} Teile", [0, 1], "{0}{1} Teile"),
        ("(/lib/x) now", "Die-Daten jetzt", [0, 1], "Die-Daten /lib/x jetzt"),
        ("(/tmp) a (/tmp)", "b (/tmp)", [1, 2], "/tmp b (/tmp)"),
    ],
)
def test_each_span_is_in_the_output_once(source, output, aligned, result):
    assert repaired(source, output, aligned) == result


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.examples)
def test_each_row_of_the_table_has_what_it_keeps_and_what_it_leaves_to_prose(pattern):
    found = find_patterns(pattern.examples)
    assert found
    assert all(row is pattern for _, row in found)
    rest = apply_edits(pattern.examples, [Edit(*span, "") for span, _ in found])
    assert not any(sign in rest for sign in pattern.signs)
    assert find_patterns(pattern.lookalikes) == []


@pytest.mark.parametrize(
    "text",
    [
        ("5 €/person, 3 kr/månad, 12 %/jaar, 4 км/год, 100 円/月"),
        ("ПК/Mac, 电脑/Windows, パソコン/Linux, הוא/she, (innen)/Eltern, 2 $ /mois, his /her"),
        ("--said he, --dijo ella--, „--sagte er“, —No --respondió Juan--, he left --then"),
        ("%25 indirim, %5'i, %10luk, % 5, kasuen %50ean, 5 %-os, 20%er"),
        ("$US 5, 100 $AU, A$AP Rocky, 5 US$, R$ 10, $100, $5 or $10"),
        ("20 millions $US, 3 Mio. $US, 20 millones de $CAN, US$20 million"),
        ("He left.She stayed, z.B. bzw. e.g. 3.5 U.S. a.m., p.ej. bl.a."),
        ("Q&A; AT&T; Tom&Jerry; &eacute; &nbsp; &ldquo;"),
        ("\\emph{this}, {one, two}, { x }, @media{a}, {x: y}"),
        ("5 m/s, km/h, dd, JJJJ-MM-TT, no. #5, #face, __a b__, snake_case__"),
        ("a@b, @home, www., http, mailto us, tel: none"),
        ("100%sure%, It is 100%sure%., 50%off% today, de%cs%, use %foo%bar%, 50%文件%"),
        ("Benutzer_innen, gtk-open, Tab_let, a_ttachments, Export_Text, GitHub, dB, pH"),
    ],
)
def test_prose_that_looks_like_code_is_none(text):
    assert texts_of(text) == []


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("tel:+49-30-123 ftp://a.org/%s", ["tel:+49-30-123", "ftp://a.org/%s"]),
        ("%-*s %5.2f %lld %zu %02d", ["%-*s", "%5.2f", "%lld", "%zu", "%02d"]),
        ("%sUnable, %dx%d, %%s, %%%d", ["%s", "%d", "%d", "%%s", "%%%d"]),
        ("{{#if x}}{{/if}} {{{raw}}}", ["{{#if x}}", "{{/if}}", "{{{raw}}}"]),
        ("{{user.name|default('x')}} {{ n | round(2) }}",
         ["{{user.name|default('x')}}", "{{ n | round(2) }}"]),
        ("{n:,d} {0,-10:F2} {t:%d %b %Y} {!r}", ["{n:,d}", "{0,-10:F2}", "{t:%d %b %Y}", "{!r}"]),
        ("#{name} %{n} $(DIR) @VERSION@", ["#{name}", "%{n}", "$(DIR)", "@VERSION@"]),
        ("&lt;b&gt; &copy; &#x2026;", ["&lt;", "&gt;", "&copy;", "&#x2026;"]),
        ("-f, --force; [--all|--none]; --file FILE", ["--force", "--all", "--none", "--file"]),
        ("D:\\data\\x.txt, ../src/a, /home/me", ["D:\\data\\x.txt", "../src/a", "/home/me"]),
        ("d.M.yyyy, HH:mm:ss", ["d.M.yyyy", "HH:mm:ss"]),
        ("Ask mail.example.org, 请看setup.py。", ["mail.example.org", "setup.py"]),
        ("Text (*.txt *.tar.gz), all (*)", ["*.txt", "*.tar.gz", "*"]),
        ("50%% of %1$d%%", ["%%", "%1$d%%"]),
        ("Hi %name%, %file_count% of $COUNT$, $a$b", ["%name%", "%file_count%", "$COUNT$", "$a"]),
        ("Click %shere%s, %dpx%% or %s%d%", ["%s", "%s", "%d", "%%", "%s", "%d"]),
        ("%lu% done, %ld%, %zu%", ["%lu", "%ld", "%zu"]),
        ("文件%name%无法, (%fileName%)", ["%name%", "%fileName%"]),
        ("%2$#@total@ in %#@all_files@", ["%2$#@total@", "%#@all_files@"]),
        ("{0, choice, 0#none|1<{0} files} of {1}", ["{0, choice, 0#none|1<{0} files}", "{1}"]),
        ("Write '{' before {n}", ["'{'", "{n}"]),
        ("请看userName和MAX_SIZE。", ["userName", "MAX_SIZE"]),
        ("Call run_command0(), or to_be_run.", ["run_command0", "to_be_run"]),
        ("Print A4, 用SHA1和UTF8, F12: 2ND 3D v2", ["A4", "SHA1", "UTF8", "F12"]),
    ],
)  # fmt: skip
def test_siblings_of_the_table_are_kept(text, spans):
    assert texts_of(text) == spans


@pytest.mark.parametrize(
    ("source", "output", "result"),
    [
        ("Get 50% off at https://x.org.", "https://x.org adresinde %50 indirim.", None),
        ("It costs $5, see https://x.org.", "$5 kostet es, siehe https://x.org.", None),
        ("It costs CAN$100 😊", "100 $CAN 😊", None),
        ("%1 files, 5% off", "%1 dosya, %5 indirim", None),
        ("%1 and %2, 2 times", "%1 ile %2, %2", None),
        ("Open it", "Öffne %s es", "Öffne es"),
        ("Open it", "Öffne es {name}", "Öffne es"),
        ("Open it", "Öffne %1, $1, $x und &amp;", None),
        ("Open %1", "Öffne %1 %2", "Öffne %1"),
        ("Open $x", "Öffne $x $y für 100 $US", "Öffne $x für 100 $US"),
        ("%s of %s", "%2$s: %1$s", None),
        ("%1$s of %2$s", "%s von %s", None),
        ("%1$s of %2$s", "%1$s von %1$s", "%1$s von %2$s"),
        ("%d%% of it", "%d\u00a0%% davon", None),
        ("%d%% of it", "bunun %%%d kadar", None),
        ("Only %d%% left", "Nur %d%% %% %% übrig", "Nur %d%% übrig"),
        ("Only 5%% left", "5 %% %% restant", "5 %% restant"),
        ("50%% and 10 percent", "50 %% und 10 %%", None),
        ("Wait&#8230;", "Warte…", None),
        ("A &amp; B &lt;", "A & B < &copy;", "A &amp; B &lt; &copy;"),
        ("Delete $1", "$1 löschen: [[$1]]", None),
        ("See https://x.org", "<a href='https://x.org'>https://x.org</a>", None),
        ("Open {x}", "{x} öffnen {x}", "{x} öffnen"),
        ("at %#0<PRIx64>", "%#0<PRIx64> bei %#0<PRIx64>", "%#0<PRIx64> bei"),
        ("Open $1", "$1 $1 öffnen", "$1 öffnen"),
        ("Open /etc/x", "Öffne /etc/x in /etc/x", "Öffne /etc/x in"),
        ("%s and /etc/x", "%s und der/etc/x", "%s und der /etc/x"),
    ],
)  # fmt: skip
def test_nothing_that_could_be_prose_is_taken_out(source, output, result):
    copies = Copies.find(source, kept_spans(source), output)
    links = TokenLinks(words(source), [], [])
    assert apply_edits(output, edits_to_restore(copies, links)) == (result or output)


@pytest.mark.parametrize("first", ["c", "objc", "perl", "php"])
@pytest.mark.parametrize("second", ["qt", "qt-plural", "kde"])
def test_of_two_flags_the_first_in_the_table_counts(first, second):
    flags = frozenset({f"{first}-format", f"{second}-format"})
    assert [span for span, _ in find_patterns("%1s of %2", flags=flags)] == [(0, 3), (7, 9)]


@pytest.mark.parametrize(
    ("source", "output", "result", "flag"),
    [
        ("100%% complete", "100 % abgeschlossen", "100 %% abgeschlossen", "c"),
        ("100%% complete", "%100 tamam", "%%100 tamam", "c"),
        ("%d%% complete", "%d\u00a0% effectués", "%d\u00a0%% effectués", "c"),
        ("%d%% complete", "%%%d tamam", "%%%d tamam", "c"),
        ("%(n)d percent", "%(n)d % fertig", "%(n)d %% fertig", "python"),
        ("%s percent", "%s % der Dateien", "%s %% der Dateien", "php"),
        ("50%% used", "50 % belegt", "50 %% belegt", ""),
        ("%1$d%% (%2$s)", "%1$d% (%2$s)", "%1$d%% (%2$s)", ""),
        ("%d items, 5%% more", "%d elementos y 5 %%% más", "%d elementos y 5 %% más", "python"),
        ("%1$d%% (%2$s)", "%1$d%%%% (%2$s) 已加载", "%1$d%% (%2$s) 已加载", ""),
        ("5 percent more", "5 % mehr", "5 % mehr", "c"),
        ("%d%% done", "%d % de fait", "%d %% de fait", "c"),
        ("%s is 50% full", "%s ist zu 50 % voll", "%s ist zu 50 % voll", ""),
        ("%1 is full", "%1 ist 100 % voll", "%1 ist 100 % voll", "qt"),
        ("{0} is full", "{0} ist 100 % voll", "{0} ist 100 % voll", ""),
        ("{} is full", "{} ist 100 % voll", "{} ist 100 % voll", ""),
    ],
)
def test_a_percent_sign_is_doubled_where_the_source_doubles_it(source, output, result, flag):
    flags = frozenset({f"{flag}-format"} if flag else ())
    spans = kept_spans(source, flags=flags)
    written = apply_edits(output, edits_to_double_percents(source, spans, output, flags))
    assert written == result
    assert Copies.find(source, spans, written, flags).are_right


@pytest.mark.parametrize(
    ("source", "output", "signed"),
    [
        ("50% of %s is used", "50 %s wird verwendet", "50% %s wird verwendet"),
        ("20% of %1$s", "20%1$s", "20% %1$s"),
        ("From 5% to 1.5%", "De 5 à 1,5 %", "De 5% à 1,5 %"),
        ("From 5% to 10%", "De 5\u00a0% à 10 %", None),
        ("50% discount", "%50 indirim, % 50", None),
        ("5 files, 5% of it", "5 Dateien, davon 5", None),
        ("5% of it", "v5, 1.5 und 50 davon", None),
        ("5%% of it", "5 davon", None),
        ("Save 20% today.", "Sparen Sie heute 20 Prozent.", None),
        ("Up to 5% more", "Bis zu 5 v. H. mehr", None),
        ("20% and 20% off", "20 Prozent und 20 minder (20)", "20 Prozent und 20% minder (20)"),
        ("50% of %s", "%s の 50 が", "%s の 50% が"),
        ("50% of %s", "50 de %s", "50% de %s"),
        ("50% of %s", "50 por ciento de %s", None),
        ("50% of %s", "50 процентов %s", None),
        ("20% off", "20퍼센트 할인", None),
        ("20% off", "20\uff05オフ", None),
        ("10% off", "خصم 10٪", None),
        ("10٪ من %s", "10 %s", "10% %s"),
        ("20% off", "20オフ", "20%オフ"),
    ],
)
def test_a_number_keeps_its_percent_sign(source, output, signed):
    spans, found = kept_spans(source), kept_spans(output)
    edits = edits_to_add_percents(source, spans, output, found)
    assert (apply_edits(output, edits) if edits else None) == signed


@pytest.mark.parametrize(
    ("source", "output", "numbered"),
    [
        ("%d of %s", "%d von %s", None),
        ("%d of %s", "%s の %d", "%2$s の %1$d"),
        ("%s: %d of %ld", "%ld 中 %s: %d", "%3$ld 中 %1$s: %2$d"),
        ("%d%% of %s", "%s bunun %%%d kadar", "%2$s bunun %%%1$d kadar"),
        ("% d of %s", "%s の % d", "%2$s の %1$ d"),
        ("%*d of %.*s", "%.*s の %*d", "%4$.*3$s の %2$*1$d"),
        ("%1$d of %2$s", "%s の %d", "%2$s の %1$d"),
        ("%1$d of %2$s", "%2$s の %1$d", None),
        ("%s: %m, %d", "%d, %m: %s", "%2$d, %m: %1$s"),
        ("%1 of %2, {} of {0}", "%2 の %1, {0} の {}", None),
    ],
)
def test_placeholders_in_another_order_are_numbered(source, output, numbered):
    flags = frozenset({"c-format"})
    copies = Copies.find(source, kept_spans(source, flags=flags), output, flags)
    edits = edits_to_number(source, output, copies.pairs)
    assert (apply_edits(output, edits) if edits else None) == numbered


@pytest.mark.parametrize(
    ("source", "output", "result"),
    [
        ("Open {{a}}", "{{a} ファイル", "{{a}} ファイル"),
        ("Open {name}", "{nam}} öffnen", "{name} öffnen"),
        ("Open ${dir}", "Ouvrir ${{dir}", "Ouvrir ${dir}"),
    ],
)
def test_a_damaged_placeholder_is_replaced_with_its_braces(source, output, result):
    copies = Copies.find(source, kept_spans(source), output)
    at = regex.search(r"\w+(?=\}|$)", output).span()
    edits = edits_to_restore(copies, TokenLinks([(5, len(source))], [at], [0]))
    assert apply_edits(output, edits) == result


def test_a_text_without_spaces_is_entered_between_its_letters():
    source, output = "Save %s now", "立即保存文件"
    links = TokenLinks(words(source), [(0, 2), (2, 4), (4, 6)], [2, 0, 0])
    edits = edits_to_restore(Copies.find(source, kept_spans(source), output), links)
    assert apply_edits(output, edits) == "立即保存文件 %s"


def test_no_letter_follows_a_placeholder():
    source, output = "<tt>%s</tt>", "<br>"
    links = TokenLinks([(0, 4), (4, 6), (6, 11)], [(0, 1), (1, 4)], [0, 2])
    edits = edits_to_restore(Copies.find(source, kept_spans(source), output), links)
    assert apply_edits(output, edits) == "<%s br>"


def test_an_unknown_character_is_kept():
    source, output = "Dear Žofie !", "Liebe ofie !"
    spans = kept_spans(source, [(5, 6)])
    assert not Copies.find(source, spans, output).are_right
    links = TokenLinks([(0, 4), (5, 6), (6, 10), (11, 12)], [(0, 5), (6, 10), (11, 12)], [0, 2, 3])
    assert (
        apply_edits(output, edits_to_restore(Copies.find(source, spans, output), links))
        == "Liebe Žofie !"
    )


def test_patterns_of_the_user_are_kept_and_the_longest_part_counts():
    patterns = compile_patterns([r"Acme(?: \w+)?", r"\bv\d+(\.\d+)*\b", r"x*", r"Büro \{0\}"])
    text = "Acme Cloud {0} v1.2 at Büro {0} http://v1.org"
    kept = ["Acme Cloud", "{0}", "v1.2", "Büro {0}", "http://v1.org"]
    assert [text[slice(*span)] for span in kept_spans(text, patterns=patterns)] == kept
    spans = kept_spans(text, patterns=patterns)
    output = "Im Büro {0} ist Acme Wolke v1.2 {0} http://v1.org"
    assert not Copies.find(text, spans, output).are_right
    assert Copies.find(text, spans, output.replace("Acme Wolke", "Acme Cloud")).are_right
    links = TokenLinks([(0, 4), (5, 10)], [(16, 20), (21, 26)], [0, 1])
    result = apply_edits(output, edits_to_restore(Copies.find(text, spans, output), links))
    assert result == "Im Büro {0} ist Acme Cloud v1.2 {0} http://v1.org"


@pytest.mark.parametrize("pattern", [r"(a|aa)+$", "("])
def test_a_pattern_that_is_wrong_or_would_take_years_is_named(pattern):
    with pytest.raises(ValueError, match=regex.escape(repr(pattern))):
        kept_spans("a" * 5000 + "b", patterns=compile_patterns([pattern]))


def test_unknown_characters_beside_a_placeholder_are_spans_of_their_own():
    assert kept_spans("a Žž%s %d", [(2, 5), (7, 9)]) == [(2, 4), (4, 6), (7, 9)]


def test_equal_parts_are_paired_in_linear_time():
    def opcodes_for(count):
        text, number = "%s " * count, 0
        spans = kept_spans(text)

        def trace(frame, event, _):
            nonlocal number
            frame.f_trace_opcodes = True
            number += event == "opcode"
            return trace

        former = sys.gettrace()
        sys.settrace(trace)
        try:
            copies = Copies.find(text, spans, text)
        finally:
            sys.settrace(former)
        assert copies.pairs == [*zip(spans, spans, strict=True)]
        return number

    opcodes_for(1)  # patterns are compiled
    assert opcodes_for(400) < 5 * opcodes_for(100)
