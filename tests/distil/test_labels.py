"""Which texts are asked, and which answers are dropped."""

from itertools import count

import pytest

from vanilla_transformer import progress
from vanilla_transformer.distil.filters import reasons_against
from vanilla_transformer.distil.sampling import choose_texts, covering_sample

WORDS = ["the", "old", "house", "by", "a", "river", "has", "many", "small", "windows", "door"]
TEXTS = [f"{a} {b} {c}." for a in WORDS for b in WORDS for c in WORDS][:600]


def test_texts_are_split_once_and_without_near_twins():
    twin = "Please open the old house by the river!"
    texts = [*TEXTS, *TEXTS[:50], "two\nlines  of text", twin]
    splits, counts = choose_texts(texts, [twin[:-1]], held_out=40, most=None)
    assert splits["test"] == [twin[:-1]]
    assert len(splits["validation"]) == 40
    train = splits["train"]
    assert train[-2:] == ["two", "lines of text"]
    assert twin not in train
    assert len({*train}) == len(train) == 602 - 40 + 1 - counts["like held-out texts"]
    assert train[:-2] == [text for text in TEXTS if text in {*train}]  # in their order
    more, _ = choose_texts(reversed([*texts, "one text more"]), [twin[:-1]], 40, None)
    assert len({*more["validation"]} & {*splits["validation"]}) >= 39


def test_too_few_texts_are_refused():
    with pytest.raises(ValueError, match="too few"):
        choose_texts(["one", "two"], [], 500, None)


@pytest.mark.parametrize("rare", ["zyx", "Ünïcødé", "猫が好き"])
def test_a_sample_has_what_is_rare(rare):
    texts = [*TEXTS, rare]
    sample = covering_sample(texts, 200)
    assert rare in sample
    assert len({*sample}) == len(sample) == 200
    assert sample == [text for text in texts if text in {*sample}]  # in their order
    assert covering_sample(texts, 10_000) == texts


GOOD = {
    ("en", "pt"): {
        "Save the file %s now.": "Salve o arquivo %s agora.",
        'He said "no".': 'Ele disse "não".',
        "Sure, we can.": "Claro, podemos.",
        "bye bye bye": "tchau tchau tchau",
        "Ready": "Pronto",
        "Select Footer Font": "Selecione a fonte do rodapé",
        "Configure the network card": "Configurar a placa de rede",
    },
    ("fr", "en"): {"D\u00e9sol\u00e9.": "I'm sorry.", "Bien s\u00fbr, merci.": "Sure, thanks."},
    ("en", "en"): {"a right text": "a right text", "a rong text": "a wrong text"},
    (None, None): {"vanilla": "V AH N IH L AH", "same": "same", "12.3.2020": "2020"},
}
BAD = {
    "empty": ("Ready", " "),
    "lines": ("Save it.", "Salve.\n\nNote: this is formal."),
    "chatter": ("Open the door.", "Sure, here is the translation: Abra a porta."),
    "identical": ("Open the door", "Open the door"),
    "language": ("Open the old window of Gnome", "Abre la ventana antigua de Gnome"),
    "loop": ("Open the large door", "Abra a porta porta porta porta"),
    "kept parts": ("Save %d files", "Salve % arquivos"),
    "cut off": ("Open the old door, and close the small windows.", "Abra a porta velha, e"),
    "length_ratio": ("Ready now", "Pronto agora, mas com muitas outras palavras"),
}
MORE_CHATTER = {
    "Yes": '"Sim"',
    "No": "```\nNão\n```",
    "Perhaps": "**Talvez**",
    "Go away": "I'm sorry, but I can't help with that.",
    "Wait": "Translation: Espere",
    "Stay": "As an AI language model, I cannot stay.",
}


@pytest.mark.parametrize("languages", GOOD)
def test_good_answers_are_kept(languages):
    assert reasons_against(GOOD[languages], languages) == {}


@pytest.mark.parametrize("reason", BAD)
def test_spoilt_answers_are_dropped(reason):
    text, answer = BAD[reason]
    assert reasons_against({text: answer}, ("en", "pt")) == {text: reason}


def test_chatter_refusals_and_answers_of_many_texts_are_dropped():
    reasons = reasons_against(MORE_CHATTER, ("en", "pt"))
    assert reasons.keys() == MORE_CHATTER.keys()
    assert {*reasons.values()} <= {"chatter", "lines"}
    refusal = "Desculpe, mas não posso ajudar com isso."
    texts = dict.fromkeys(["Kill the process", "Kill the child", "Kill the parent"], refusal)
    assert {*reasons_against(texts, ("en", "pt")).values()} == {"of many texts"}


@pytest.mark.parametrize(
    ("work", "begin"),
    [
        (lambda: choose_texts(TEXTS, [], 40, None), "Comparing with held-out texts: 1 of "),
        (
            lambda: reasons_against(dict(zip(TEXTS, TEXTS, strict=True)), ("en", "pt")),
            "Filtering: 1 of ",
        ),
    ],
)
def test_a_long_step_tells_how_far_it_is(work, begin, monkeypatch, capsys):
    monkeypatch.setattr(progress, "monotonic", count(step=10).__next__)  # 10 seconds for each text
    work()
    assert capsys.readouterr().err.startswith(begin)
