"""Parts that no model computes stay, at each door, and count as what they are."""

from dataclasses import replace

import pytest
from transformers import GenerationConfig

from vanilla_transformer import Translator, VanillaTransformerTokenizer
from vanilla_transformer.inference.engine import Hypothesis
from vanilla_transformer.inference.engine_choice import Engines
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.pivot import (
    combine_translations,
    plan_from_pivot,
    without_read_memories,
)

TEXT = "open the file now . , ; a b c d e : / % $ { } _ s n 0 1 https"
ALONE = ["{name}", "https://a.org/b?c=d", "%s", "😀, 😀", "%s\u00a0%d", "😀\u00a0😀"]


class Writing:
    """An engine that writes a text for each source, and finds no end for long ones."""

    name, batch_tokens = "writing", 1024

    def __init__(self, tokenizer, outputs=("now",), longest=100):
        self.tokenizer, self.outputs, self.longest, self.sources = tokenizer, outputs, longest, []

    def problems(self, search):
        return []

    def token_scores(self, sources, targets, *_):
        """The shortest output has the best score."""
        return [[-1.0 * len(ids)] * len(ids) for ids in targets]

    def generate(self, sources, search, batch_tokens, align=False, on_batch=None):
        self.sources += self.tokenizer.batch_decode(sources, skip_special_tokens=True)
        rows = []
        for ids in sources:
            written = [self.tokenizer(text)["input_ids"] for text in self.outputs[: search.n_best]]
            if len(ids) > self.longest:
                full = (written[0][:-1] * search.max_new_tokens)[: search.max_new_tokens]
                rows.append([Hypothesis(tuple(full), None, (0,) * len(full))] * search.n_best)
            else:
                rows.append(
                    [Hypothesis(tuple(w[:-1]), w[-1], (0,) * (len(w) - 1)) for w in written]
                )
        return rows


def translator_of(*outputs, **options):
    tokenizer = VanillaTransformerTokenizer.train([TEXT], kind="bpe", vocab_size=300)
    settings = GenerationConfig(
        decoder_start_token_id=0, eos_token_id=2, pad_token_id=1, max_length=30
    )
    engine = Writing(tokenizer, outputs or ("now",), **options)
    return Translator(Engines(engine), tokenizer, settings, 100)


@pytest.mark.parametrize("text", ALONE)
def test_a_line_of_kept_parts_alone_stays(text):
    translator, whole = translator_of(), f"open the file\n{text}"
    output = translator.translate(whole, return_marks=True, return_word_alignment=True)
    assert output.text == f"now\n{text}"
    assert "".join(output.text[mark.begin : mark.end] for mark in output.marks) == "".join(
        part for part in text.replace("\u00a0", " ").replace(",", "").split()
    )
    assert translator.translate(text) == text
    assert translator.engine.sources == ["open the file"]
    assert {s - 2 for s, t in output.word_alignment if t > 0} == {
        *range(1, len(text.split(" ")) + 1)
    }


def test_kept_parts_alone_stay_beyond_the_longest_source():
    text = " ".join(f"/usr/share/doc/package{number}/copyright" for number in range(60))
    assert translator_of().translate(text) == text


@pytest.mark.parametrize("text", ALONE)
@pytest.mark.parametrize("options", [{}, {"scores": True}])
def test_it_stays_through_a_third_language(text, options):
    translator = translator_of()
    asked = TranslateOptions(marks=True, **options)
    job = without_read_memories(translator.plan([f"open the file\n{text}", text], asked))
    outputs = [row[0] for row in translator.run(job)]
    second = translator.run(plan_from_pivot(translator, asked, job, outputs))
    assert [row[0].text for row in second] == [f"now\n{text}", text]
    assert translator.engine.sources == ["open the file", "now"]


@pytest.mark.parametrize("in_sentences", [False, True])
@pytest.mark.parametrize("text", ALONE)
def test_it_stays_in_a_line_that_is_translated_in_sentences(text, in_sentences):
    sentences, translator = ["open the file now.", "the file."], translator_of("e")
    translator.engine.longest = len(translator.tokenizer(sentences[0])["input_ids"])
    options = {"in_sentences": in_sentences, "max_new_tokens": 4}
    assert translator.translate(" ".join([*sentences, text]), **options) == f"e e {text}"
    assert translator.engine.sources[-2:] == sentences


@pytest.mark.parametrize(
    ("source", "written", "numbered"),
    [
        ("%s\nopen %s now %d", "%d now %s", "%1$s\n%3$d now %2$s"),
        ("open %s now %d\n%s", "%d now %s", "%2$d now %1$s\n%3$s"),
        ("%s\nopen %s now %d", "now %s %d", "%s\nnow %s %d"),
    ],
)
def test_placeholders_alone_count_where_others_are_numbered(source, written, numbered):
    translator = translator_of(written)
    job = translator.plan([source], TranslateOptions())
    message = job.texts[0]._replace(flags=frozenset({"c-format"}))
    assert translator.run(replace(job, texts=[message]))[0][0].text == numbered


@pytest.mark.parametrize(
    "text", ["open the file", "open the file\nopen it", "open {name} now", " \nopen"]
)
def test_details_do_not_change_the_order_of_outputs(text):
    translator = translator_of("now the file is open", "now")
    plain = translator.translate(text, n_best=2, num_beams=2)
    for detail in ("return_scores", "return_tokens", "return_marks"):
        row = translator.translate(text, n_best=2, num_beams=2, **{detail: True})
        assert [output.text for output in row] == plain


@pytest.mark.parametrize("text", ["open %s now %d", "a %d b %s", "open %s\nthe %d now %s"])
def test_an_untranslated_text_tells_nothing_of_the_output(text):
    written = "%d now %s" if text.index("%s") < text.index("%d") else "%s b %d"
    if "\n" in text:
        written = "%s %d"
    translator = translator_of(written)
    details = ("scores", "tokens", "alignment", "word_alignment", "links", "marks")
    asked = TranslateOptions(**dict.fromkeys(details, True))
    job = translator.plan([text], asked)
    ((output,),) = translator.run(job)
    assert (output.text, output.untranslated) == (text, True)
    assert (output.score, output.restored, output.quality, output.features) == (0, (), None, None)
    names = ("tokens", "token_scores", "alignment", "source_tokens", "word_alignment", "marks")
    assert [getattr(output, name) for name in names] == [()] * 6
    second = translator.run(plan_from_pivot(translator, asked, job, [output]))[0][0]
    both = combine_translations(text, output, second)
    assert (both.text, both.untranslated, both.score) == (text, True, 0)
    assert [getattr(both, name) for name in names] == [()] * 6


class Greedy(Writing):
    """An engine for a search of one beam alone."""

    def problems(self, search):
        can_do = search.num_beams == 1 and not search.settings.no_repeat_ngram_size
        return [] if can_do else ["beams"]

    def generate(self, sources, search, *arguments):
        assert not self.problems(search)
        return super().generate(sources, search, *arguments)


@pytest.mark.parametrize(
    ("text", "written"),
    [("open %s now %d", "%d now %s"), ("a %d b %s", "%s b %d"), ("open it", "now now now now now")],
)
def test_an_engine_computes_only_what_it_can(text, written):
    translator = translator_of(written)
    own, other = translator.engine, Writing(translator.tokenizer, ["now %s %d", "the file"])
    engines = Engines(Greedy(own.tokenizer, own.outputs), lambda: other, is_demanded=False)
    Translator(engines, own.tokenizer, translator.settings, 100).translate(text)
    assert len(other.sources) == 1
