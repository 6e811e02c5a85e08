"""Texts are divided into lines."""

import pytest

from vanilla_transformer.text.lines import Line, split_lines


def lines_and_pattern(text):
    """Returns the lines of a text, and the text with their indices in their place."""
    lines, pattern = [], ""
    for part in split_lines(text):
        if isinstance(part, Line):
            assert text[slice(*part.span)] == part.text
            pattern += str(len(lines))
            lines.append(part.text)
        else:
            pattern += part
    return lines, pattern


def test_lines_and_blank_lines_stay_where_they_are():
    lines, pattern = lines_and_pattern("one two\r\n\n  \nthree\n")
    assert (lines, pattern) == (["one two", "three"], "0\r\n\n  \n1\n")


def test_tabs_part_a_line():
    lines, pattern = lines_and_pattern("Open\tCtrl+O\t\t%s files\n")
    assert (lines, pattern) == (["Open", "Ctrl+O", "%s files"], "0\t1\t\t2\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Text files (*.txt)|*.txt|All files (*.*)|*.*", "0|1|2|3"),
        ("Images (*.png *.xpm);;XML files (*.xml);;All files (*)", "0;;1;;2"),
        ("one apple|{n} apples", "0|1"),
        ("no cars | one car | {count} cars", "0 | 1 | 2"),
        ("{0} none|{1} one|[2,*] many files", "{0} 0|{1} 1|[2,*] 2"),
        ("[0,9]few|[10,*]{n} many", "[0,9]0|[10,*]1"),
        ("|URL|the file at URL", "|0|1"),
        ("first || (a | b) second | c", "0 || 1 | 2"),
        ("File<br/>Open<BR>it", "0<br/>1<BR>2"),
        ("{0} files of {1}, [1,2] of it; done;;", "0"),
        ("[--all|--none] <on|off> (a|b) {{x | cut('a')}} x", "0"),
        ("put \"|\" before it, or '|', \\| not", "0"),
        ("one|many", "0|1"),
        ("no car | :count cars", "0 | 1"),
        ("1 day|:count days", "0|1"),
        ("the '90s film|{n} films of the '90s", "0|1"),
        ("Tue 's morning|{n} mornings", "0|1"),
        ('"a|b"', "0"),
        ("\u201ea|b\u201c|{n} \u00abc|d\u00bb", "0|1"),
        ("{n} times 'a|b'|don't `c|d`", "0|1"),
        ("Press Ctrl|Alt to open the menu", "0"),
        ("Use | to pipe", "0"),
        ("\u6309 Ctrl|Alt \u6253\u5f00\u83dc\u5355", "0"),
        ("Press Ctrl|Alt.\nAll (*)|*", "0\n1|2"),
    ],
)
def test_the_parts_of_a_line_are_lines(text, expected):
    assert lines_and_pattern(text)[1] == expected
    assert (
        "".join(part if isinstance(part, str) else part.text for part in split_lines(text)) == text
    )


@pytest.mark.parametrize("text", ["", " ", "\n", "\r", "\t\u3000", "\ufeff", " \u200b\r\n\n"])
def test_white_space_alone_stays_as_it_is(text):
    assert lines_and_pattern(text) == ([], text)


@pytest.mark.parametrize(
    "text", ["0 ", "\t0\u00a0\u3000", "\ufeff0\r\n 1\u200b", "0\r1\r", "0\u20281\f2\x85\u2029\v"]
)
def test_what_surrounds_a_line_stays_around_it(text):
    lines, pattern = lines_and_pattern(text)
    assert ("".join(lines), pattern) == ("012"[: len(lines)], text)
