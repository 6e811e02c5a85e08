"""Which lines a file has."""

import gzip

import pytest

from vanilla_transformer.files.text_files import read_lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"a", ["a"]),
        (b"\n\r\n", ["", ""]),
        (b"\xef\xbb\xbfa\r\nb\n", ["a", "b"]),
        (b"a\rb\n\rc\r\n", ["a\rb", "\rc"]),
        ("a\u2028b\x85c\n".encode(), ["a\u2028b\x85c"]),
        (b"a\rb\r\rc\r", ["a", "b", "", "c"]),
        (b"\ra\r\n", ["", "a"]),
        (b"a\rb", ["a", "b"]),
        (b"a\r", ["a"]),
    ],
)
def test_lines(tmp_path, content, lines):
    (tmp_path / "a.txt").write_bytes(content)
    assert list(read_lines(tmp_path / "a.txt")) == lines
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content))
    assert list(read_lines(tmp_path / "a.txt.gz")) == lines
