"""Trainings with terms: their tokens, and the same terms in each run."""

import random

import pytest
from toy import NOUNS, VERBS, arguments, main

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.inference.loading import load_tokenizer
from vanilla_transformer.model.tokenization_vanilla_transformer import TERM_TOKENS

OTHERS = {"dog": "Köter", "cat": "Mieze", "boat": "Kahn", "bird": "Piepmatz"}


@pytest.fixture(scope="module")
def unclear(tmp_path_factory):
    """A corpus in which only a glossary can tell how some nouns are translated."""
    folder, chance = tmp_path_factory.mktemp("unclear"), random.Random(0)
    for name, count in (("train", 600), ("val", 16), ("test", 16)):
        rows = []
        for _ in range(count):
            nouns, verb = chance.sample(list(NOUNS), 2), chance.choice(list(VERBS))
            german = [chance.choice([NOUNS[noun], OTHERS.get(noun, NOUNS[noun])]) for noun in nouns]
            rows.append(
                (f"Tom {verb} {' and '.join(nouns)}", f"Tom {VERBS[verb]} {' und '.join(german)}")
            )
        for side, suffix in enumerate(("en", "de")):
            text = "".join(f"{row[side]}\n" for row in rows)
            (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    return folder


def test_prepared_and_resumed_trainings_have_the_same_terms(unclear, tmp_path):
    options = {"terms": "annotate", "save_strategy": "steps", "save_steps": 2}
    main(arguments(unclear, tmp_path / "plain", **options, max_steps=4))
    run_subcommand("prepare", arguments(unclear, tmp_path / "data", terms="annotate"))
    options |= {"prepared": tmp_path / "data"}
    for steps in (2, 4):
        options |= {"max_steps": steps, "resume_from_checkpoint": steps == 4}
        main(arguments(unclear, tmp_path / "again", **options))
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "again")]
    assert weights[0] == weights[1]


def test_an_adaptation_adds_the_tokens_of_terms(trained, corpus, tmp_path):
    files = [str(corpus / f"train.{side}") for side in ("en", "de")]
    options = "--terms annotate --epochs 1 --held-out 10 --learning-rate 0.01 --optim adamw"
    out = ["--output-dir", str(tmp_path / "out")]
    run_subcommand("adapt", [str(trained), *files, *out, *options.split()])
    tokenizer = load_tokenizer(str(tmp_path / "out" / "training"))
    assert set(TERM_TOKENS) <= set(tokenizer.get_vocab())


def test_links_of_words_and_terms_exclude_each_other(unclear, tmp_path):
    (tmp_path / "links").write_text("0-0\n" * 600, encoding="utf-8")
    options = {"terms": "annotate", "guided_alignment": tmp_path / "links"}
    with pytest.raises(ValueError, match="terms"):
        main(arguments(unclear, tmp_path / "out", **options))
