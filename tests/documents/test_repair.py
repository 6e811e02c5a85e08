"""Stored translations of similar texts, with what a model has made of the words that differ."""

import pytest

from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.repair import repair
from vanilla_transformer.documents.translation import MarkedJob, PlannedText, write_document
from vanilla_transformer.inference.job import Job, JobText
from vanilla_transformer.inference.memory_use import LEAST_REPAIRED, MemoryUse
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.model.directions import Direction
from vanilla_transformer.text.memory import Suggestion
from vanilla_transformer.text.token_links import TokenLinks
from vanilla_transformer.text.words import spaced_words


def repaired(texts, output, links):
    """Repairs a translation; the links name a word of the text for each of the output."""
    text, source, target = texts
    parts = [spaced_words(side) for side in (text, output)]
    return repair(text, Suggestion(source, target, 0.7), output, TokenLinks(*parts, links))


FILE = ("Open the new file.", "Open the old file.", "Die alte Datei öffnen.")


@pytest.mark.parametrize(
    ("texts", "output", "links", "expected"),
    [
        # Only the word that translates a new one is taken from the output.
        (FILE, "Das neue Dokument öffnen.", [1, 2, 3, 0], "Die neue Datei öffnen."),
        (FILE, "Das neue Dokument öffnen.", [2, 1, 1, 0], "Das alte Datei öffnen."),
        (FILE, "Öffnen", [0], "Die alte Datei öffnen."),
        (FILE, "", [], "Die alte Datei öffnen."),
        # What differs too much is no translation of one word.
        (FILE, "Das ist ein neues Dokument", [2, 2, 2, 2, 2], "Die alte Datei öffnen."),
        # A word more, at each end and within; a word less.
        (("very bad move", "bad move", "ein Zug"), "sehr ein Zug", [0, 1, 2], "sehr ein Zug"),
        (("a move now", "a move", "ein Zug\n"), "ein Zug jetzt", [0, 1, 2], "ein Zug jetzt\n"),
        (("a bad move", "a move", "Ein Zug"), "Ein böser Zug", [0, 1, 2], "Ein böser Zug"),
        (("a move", "a bad move", "ein böser Zug"), "ein Zug", [0, 1], "ein Zug"),
        (("a move", "a bad move", "ein Zug"), "Zug", [1], "Zug"),
        # Scripts without spaces.
        (("open the file", "close the file", "关闭文件"), "打开档案", [0, 0, 2, 2], "打开文件"),
        # A lost placeholder.
        (("Save %s now", "Save %s later", "%s später"), "jetzt", [2], "%s später"),
        (("Save %s!", "Save %s.", "%s sichern!"), "%s retten!", [1, 0], "%s sichern!"),
    ],
)
def test_words_that_translate_new_words_come_from_the_output(texts, output, links, expected):
    assert repaired(texts, output, links) == expected


@pytest.mark.parametrize(
    ("name", "similarity", "expected"),
    [
        ("a.po", 0.75, 'fuzzy\nmsgid "Open the new file."\nmsgstr "Die neue Datei öffnen."'),
        ("a.po", 0.65, '\n\nmsgid "Open the new file."\nmsgstr "Das neue Dokument öffnen."'),
        ("a.json", 0.75, '{"a": "Das neue Dokument öffnen."}'),
    ],
)
def test_files_that_can_say_so_have_proposals(name, similarity, expected):
    text, source, target = FILE
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    content = f'{{"a": "{text}"}}' if name == "a.json" else f'{head}msgid "{text}"\nmsgstr ""\n'
    document, output = read_document(name, content.encode()), "Das neue Dokument öffnen."
    links = TokenLinks(spaced_words(text), spaced_words(output), [1, 2, 3, 0])
    known = Suggestion(source, target, similarity)
    translated = Translation(output, from_memory=known, links=links, quality=20.0)
    is_repaired = document.marks_doubt and similarity >= LEAST_REPAIRED
    asked = JobText(text, Direction(), MemoryUse(known, is_read=True, is_repaired=is_repaired))
    planned = MarkedJob(
        [PlannedText(text.marked, text.marked) for text in document.texts], Job([asked], None), "de"
    )
    written = write_document(document, planned, [translated])
    # The quality of the model's output is not that of a proposal.
    assert (written.outputs[0].quality is None) == ("fuzzy" in expected)
    assert expected in written.content.decode()


def test_a_proposal_is_not_repaired_with_an_output_that_is_cut_off():
    text, source, target = FILE
    content = f'msgid "{text}"\nmsgstr ""\n'.encode()
    document, output = read_document("a.po", content), "Das neue Dok"
    links = TokenLinks(spaced_words(text), spaced_words(output), [1, 2, 3])
    known = Suggestion(source, target, 0.75)
    cut = Translation(output, from_memory=known, links=links, is_complete=False)
    asked = JobText(text, Direction(), MemoryUse(known, is_read=True, is_repaired=True))
    planned = MarkedJob(
        [PlannedText(text.marked, text.marked) for text in document.texts], Job([asked], None), "de"
    )
    written = write_document(document, planned, [cut])
    assert (written.content, written.untranslated) == (content, ["line 2"])


ICU = "{n, plural, one {# dog} other {# dogs}}"
FORMS = 'msgid "a dog"\nmsgid_plural "dogs"\nmsgstr[0] ""\nmsgstr[1] ""\n'


@pytest.mark.parametrize(
    ("name", "content", "outputs", "places"),
    [
        ("a.json", f'["{ICU}",\n"a cat"]', ["X", "{0} X", "CAT"], ["line 1"]),
        ("a.json", f'["{ICU}",\n"a cat"]', [None, "{0} X", "CAT"], ["line 1"]),
        ("a.html", f"<p>{ICU}</p>\n<p>a cat", ["{0} X", "X", "CAT"], ["line 1"]),
        ("a.po", f'{FORMS}msgid "a cat"\nmsgstr ""\n', ["X", None, "CAT"], ["line 3", "line 4"]),
        ("a.json", f'["{ICU}",\n"a cat"]', ["{0} X", "{0} X", "CAT"], []),
        ("a.json", f'["{ICU}",\n"a cat"]', ["{0} X", "", "CAT"], ["line 1"]),
        ("a.po", f'{FORMS}msgid "a cat"\nmsgstr ""\n', [" ", "X", "CAT"], ["line 3", "line 4"]),
    ],
)
def test_all_texts_of_a_message_that_stays_are_named(name, content, outputs, places):
    document = read_document(name, content.encode())
    asked = [JobText(text.marked.plain, Direction()) for text in document.texts]
    planned = MarkedJob(
        [PlannedText(text.marked, text.marked) for text in document.texts], Job(asked, None), "de"
    )
    rows = [
        Translation("X" if output is None else output, is_complete=output is not None)
        for output in outputs
    ]
    written = write_document(document, planned, rows)
    assert written.untranslated == places
    assert [text and text.plain for text in written.written] == (
        [None, None, "CAT"] if places else outputs
    )
    assert (b"X" in written.content, b"CAT" in written.content) == (not places, True)
