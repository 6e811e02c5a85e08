"""Translation memories: what is read of them, and what is refused."""

import gzip
import tracemalloc

import pytest

from vanilla_transformer.files.tmx import read_tmx

HEAD = (
    '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header/><body>\n'
)
TAIL = "</body></tmx>"


def unit(*segments, extra=""):
    tuvs = (f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in segments)
    return f"<tu>{extra}{''.join(tuvs)}</tu>\n"


def save(path, *units, head=HEAD, tail=TAIL):
    path.write_text(head + "".join(units) + tail, encoding="utf-8")
    return str(path)


def test_units_are_read_with_variants_of_languages_and_numbers(tmp_path):
    path = save(
        tmp_path / "a.tmx",
        unit(("en-US", "A dog &amp; a\n  cat"), ("de-DE", "Hund und Katze"), ("fr", "chien")),
        unit(("DE_at", "Jänner"), ("en", "January"), ("en-GB", "second"), extra="<note>no</note>"),
        unit(("en", "alone"), ("fr", "seul")),
        unit(("es", "otra"), ("de", "nur deutsch")),
        unit(("eng_US", "long code"), ("ger", "langer Code")),
    )
    assert list(read_tmx(path, ["en", "de"])) == [
        ("A dog & a cat", "Hund und Katze", 1, ""),
        ("January", "Jänner", 2, ""),
        ("alone", "", 3, ""),
        ("", "nur deutsch", 4, ""),
        ("long code", "langer Code", 5, ""),
    ]
    assert list(read_tmx(path, ["de-AT", "en"]))[1][:2] == ("Jänner", "January")


def test_codes_of_inline_elements_are_kept_or_dropped(tmp_path):
    text = 'A <bpt i="1">&lt;b&gt;</bpt>big <hi>red</hi><ept i="1">&lt;/b&gt;</ept> dog<ph>%s</ph>'
    path = save(tmp_path / "a.tmx", unit(("en", text), ("de", "Hund")))
    assert next(read_tmx(path, ["en", "de"]))[0] == "A <b>big red</b> dog%s"
    assert next(read_tmx(path, ["en", "de"], "drop"))[0] == "A big red dog"


def test_a_code_of_a_variant_wins_over_that_of_its_language(tmp_path):
    path = save(
        tmp_path / "a.tmx",
        unit(("pt-BR", "ônibus"), ("pt-PT", "autocarro")),
        unit(("pt", "comboio"), ("pt_br", "trem")),
    )
    pairs = [("autocarro", "ônibus"), ("comboio", "trem")]
    assert [pair[:2] for pair in read_tmx(path, ["pt", "pt-BR"])] == pairs
    assert [pair[1::-1] for pair in read_tmx(path, ["pt-BR", "pt"])] == pairs


@pytest.mark.parametrize(
    ("wanted", "codes", "taken"),
    [
        ("zh", ("zh-TW", "zh-CN"), "zh-CN"),
        ("zh", ("zh_TW", "zh-Hans"), "zh-Hans"),
        ("zh-Hans", ("zh-TW", "zh-CN"), "zh-CN"),
        ("zh-Hant", ("zh-CN", "zh-TW"), "zh-TW"),
        ("zh-TW", ("zh", "zh-Hant-TW"), "zh-Hant-TW"),
        ("zh", ("zh-TW", "zh-HK"), None),
        ("sr", ("sr-Latn", "sr-RS"), "sr-RS"),
        ("sr-Latn", ("sr", "sr-Latn-RS"), "sr-Latn-RS"),
        ("pt", ("en-US", "pt-BR"), "pt-BR"),
    ],
)
def test_a_translation_in_another_script_is_in_another_language(tmp_path, wanted, codes, taken):
    path = save(tmp_path / "a.tmx", unit(("en", "dog"), *zip(codes, codes, strict=True)))
    if taken is None:
        with pytest.raises(ValueError, match=f"no text in '{wanted}'"):
            list(read_tmx(path, ["en", wanted]))
    else:
        assert list(read_tmx(path, ["en", wanted])) == [("dog", taken, 1, "")]


def test_white_space_of_a_text_stays(tmp_path):
    text = "10\u00a0000\u202f%\u3000"
    path = save(tmp_path / "a.tmx", unit(("fr", f"\n {text}\u2028a\t b "), ("en", "10,000%")))
    assert next(read_tmx(path, ["fr", "en"]))[0] == f"{text}\u2028a b"


def test_text_within_a_code_is_text(tmp_path):
    text = 'A<ph>&lt;img alt="<sub> red <ph>&lt;b&gt;</ph>dog</sub>"&gt;</ph>.'
    path = save(tmp_path / "a.tmx", unit(("en", text), ("de", "Hund")))
    assert next(read_tmx(path, ["en", "de"], "drop"))[0] == "A red dog."
    assert next(read_tmx(path, ["en", "de"]))[0] == 'A<img alt=" red <b>dog">.'


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1"])
def test_units_with_characters_that_xml_forbids_are_left_out(tmp_path, encoding, caplog):
    forbidden = ["&#11;", "&#x1F;", "&#xD800;", "&#0;", "&#xFFFF;", "&#1114112;", "\x0b", "\0"]
    damaged = [unit(("en", f"a{sign}"), ("de", "b")) for sign in forbidden]
    units = [unit(("en", "&#228;&amp;#11;"), ("de", "é")), *damaged, unit(("en", "c"), ("de", "d"))]
    head = HEAD.replace("?>", f' encoding="{encoding.removesuffix("-sig")}"?>', 1)
    (tmp_path / "a.tmx").write_bytes((head + "".join(units) + TAIL).encode(encoding))
    pairs = list(read_tmx(str(tmp_path / "a.tmx"), ["en", "de"]))
    assert pairs == [("ä&#11;", "é", 1, ""), ("c", "d", 2 + len(damaged), "")]
    assert f": {len(damaged)} units" in caplog.text


def test_documents_are_read(tmp_path):
    name = '<prop type="{}">man\n  ual</prop>'
    props = [name.format("x-Document"), name.format("filename"), name.format("x-domain"), "<prop/>"]
    pair = (("en", f"a {props[0]}"), ("de", "b"))
    path = save(tmp_path / "a.tmx", *(unit(*pair, extra=prop) for prop in props))
    documents = [pair[3] for pair in read_tmx(path, ["en", "de"])]
    assert documents == ["man ual", "man ual", "", ""]


def test_packed_and_utf16_files_are_read(tmp_path):
    text = HEAD.replace("?>", ' encoding="utf-16"?>', 1) + unit(("en", "ä"), ("de", "ö")) + TAIL
    (tmp_path / "a.tmx.gz").write_bytes(gzip.compress(text.encode("utf-16")))
    assert list(read_tmx(str(tmp_path / "a.tmx.gz"), ["en", "de"])) == [("ä", "ö", 1, "")]


DAMAGED = {
    "unknown": (HEAD, unit(("en", "&what;"), ("de", "x")), "undefined entity &what;"),
    "encoding": (HEAD.replace("?>", ' encoding="none"?>', 1), "", "no intact TMX file"),
    "cut": (HEAD, "<tu><tuv", "no intact TMX file"),
    "no_language": (HEAD, "<tu><tuv><seg>a</seg></tuv></tu>", r"languages are \(none given\)"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_named(tmp_path, name):
    head, body, message = DAMAGED[name]
    path = save(tmp_path / "bad.tmx", body, head=head, tail="" if name == "cut" else TAIL)
    with pytest.raises(ValueError, match=message) as caught:
        list(read_tmx(path, ["en", "de"]))
    assert str(caught.value).startswith(path)


def test_a_large_file_takes_constant_memory(tmp_path):
    peaks = []
    for count in (500, 4000):
        path = tmp_path / f"{count}.tmx"
        with path.open("w", encoding="utf-8") as file:
            file.write(HEAD)
            file.writelines(
                unit(("en", f"text {n} " * 9), ("de", f"Text {n}")) for n in range(count)
            )
            file.write(TAIL)
        tracemalloc.start()
        assert sum(1 for _ in read_tmx(str(path), ["en", "de"])) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0]
