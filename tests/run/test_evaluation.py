"""One search everywhere: `train`, `evaluate` and `translate` lead to the same scores."""

import json
from logging import Logger

import pytest
import sacrebleu
from datasets import Dataset
from made_up_language import arguments, main
from transformers import GenerationConfig

from vanilla_transformer.columns import with_languages
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.run.evaluation import evaluate_model
from vanilla_transformer.run.score_tokenizers import choose_score_tokenizers

SEARCHES = {
    "defaults": {},
    "beams": {"generation_num_beams": 4, "generation_length_penalty": 2.0},
    "bf16": {"generation_num_beams": 2, "bf16": True},
}


@pytest.fixture
def odd_corpus(corpus, tmp_path):
    """The corpus with a source that is longer than the positions of the model."""
    for path in corpus.glob("t*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for path in tmp_path.glob("test.*"):
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines[:12], " ".join(lines[12:])]) + "\n")
    return tmp_path


@pytest.mark.parametrize("name", SEARCHES)
def test_a_score_is_the_same_wherever_it_is_computed(odd_corpus, tmp_path, capsys, name):
    options = {"num_train_epochs": 3, "position_embedding_type": "learned"}
    options |= {"max_position_embeddings": 12, **SEARCHES[name]}
    argv = arguments(odd_corpus, tmp_path / "run", "train", "test", **options)
    for option in ("--generation_num_beams", "--generation_max_length"):
        if option[2:] not in SEARCHES[name]:
            del argv[argv.index(option) : argv.index(option) + 2]
    figures = main(argv)
    files = [str(odd_corpus / f"test.{side}") for side in ("en", "de")]
    capsys.readouterr()
    words = ["--test-source", files[0], "--test-target", files[1]]
    run_subcommand("evaluate", [str(tmp_path / "run"), *words, "--json"])
    evaluated = json.loads(capsys.readouterr().out)
    run_subcommand("translate", [str(tmp_path / "run"), "--input", files[0]])
    outputs = capsys.readouterr().out.splitlines()
    references = (odd_corpus / "test.de").read_text().splitlines()
    by_hand = sacrebleu.corpus_bleu(outputs, [references]).score
    assert 5 < by_hand < 95
    assert evaluated["bleu"]["bleu"] == pytest.approx(by_hand, abs=1e-9)
    assert figures["test_bleu"] == pytest.approx(by_hand, abs=1e-9)
    ends = [figures["test_bleu_low"], figures["test_bleu_high"]]
    assert evaluated["bleu"]["interval"] == pytest.approx(ends)


def test_a_model_that_finds_no_end_is_cut_off_soon_while_it_trains(corpus, tmp_path):
    """Its score after the training is that of the saved search."""
    GenerationConfig(suppress_tokens=[0, 1, 2, 3]).save_pretrained(tmp_path / "search")
    options = {"max_steps": 1, "generation_max_length": 100}
    options |= {"eval_strategy": "steps", "eval_steps": 1, "generation_config": tmp_path / "search"}
    run = tmp_path / "run"
    figures = main(arguments(corpus, run, "train", "validation", **options))
    rows = json.loads((run / "trainer_state.json").read_text())["log_history"]
    during, _ = [row["eval_gen_len"] for row in rows if "eval_gen_len" in row]
    references = (corpus / "val.de").read_text().splitlines()
    longest = max(len(line.split()) + 1 for line in references)
    assert 2 * longest < during <= 2 * longest + 8 < figures["eval_gen_len"] <= 99
    assert json.loads((run / "generation_config.json").read_text())["max_length"] == 100


def test_evaluations_are_greedy_until_the_training_ends(corpus, tmp_path, capsys):
    options = {"max_steps": 30, "eval_strategy": "steps", "eval_steps": 30}
    options |= {"generation_num_beams": 4, "generation_length_penalty": 3.0}
    figures = main(arguments(corpus, tmp_path, "train", "validation", **options))
    rows = json.loads((tmp_path / "trainer_state.json").read_text())["log_history"]
    during, after = [row["eval_chrf"] for row in rows if "eval_chrf" in row]
    assert during != after == figures["eval_chrf"]
    files = {"test_source": corpus / "val.en", "test_target": corpus / "val.de"}
    data = DataArguments(**{name: str(path) for name, path in files.items()})
    for score, search in ((during, {"num_beams": 1}), (after, {})):
        scored = evaluate_model(str(tmp_path), data, engine="transformers", **search)
        assert scored.scores["chrf"]["chrf"] == pytest.approx(score)


def test_a_tag_that_is_no_token_of_the_model_is_refused(trained, corpus):
    files = [str(corpus / "test.en"), str(corpus / "test.de")]
    entry = json.dumps({"name": "a", "tag": "<formal>", "test": files})
    with pytest.raises(ValueError, match="'<formal>' is no token"):
        evaluate_model(trained, DataArguments(corpora=[entry]))
    pairs = [str(corpus / "train.en"), str(corpus / "train.de")]
    training = json.dumps({"name": "a", "tag": "<formal>", "train": pairs})
    data = DataArguments(corpora=[training], test_source=files[0], test_target=files[1])
    assert evaluate_model(trained, data).scores  # its sources have no tag


CHINESE = ["我今天看到一只黑猫", "他在公园里睡觉", "我们喜欢喝热茶", "你明天会去学校吗"]


def test_chinese_is_scored_by_its_words_everywhere(tmp_path, capsys):
    sources = ["i see a cat", "he sleeps here", "we like tea", "you go there"]
    for side, lines in (("en", sources), ("zh", CHINESE)):
        for split in ("train", "val", "test"):
            (tmp_path / f"{split}.{side}").write_text("\n".join(lines) + "\n")
    run = tmp_path / "run"
    data = {
        f"{name}_{key}": tmp_path / f"{split}.{side}"
        for name, split in (("train", "train"), ("validation", "val"), ("test", "test"))
        for key, side in (("source", "en"), ("target", "zh"))
    }
    options = {"output_dir": run, **data, "max_steps": 150, "learning_rate": 0.01, "d_model": 32}
    options |= {"tokenizer_kind": "char", "max_tokens": 200, "metrics": "bleu"}
    options |= {"eval_strategy": "steps", "eval_steps": 75, "save_strategy": "no", "use_cpu": True}
    Logger.warning_once.cache_clear()
    figures = main([f"--{name}={value}" for name, value in options.items()])
    assert figures["eval_bleu"] == figures["test_bleu"] == pytest.approx(100)
    assert "tok:zh" in (run / "README.md").read_text()
    lines = capsys.readouterr().err
    assert "are mostly in the script of zh" in lines
    Logger.warning_once.cache_clear()  # as in a new process
    files = ["--test-source", str(tmp_path / "test.en"), "--test-target", str(tmp_path / "test.zh")]
    run_subcommand("evaluate", [str(run), *files, "--metrics", "bleu", "--json"])
    printed = capsys.readouterr()
    assert "are mostly in the script of zh" in printed.err
    assert json.loads(printed.out)["bleu"]["bleu"] == pytest.approx(100)


@pytest.mark.parametrize(("word", "expected"), [("猫", "tok:zh"), ("แมว", "tok:char")])
def test_a_card_has_the_signature_of_each_split_where_they_differ(corpus, tmp_path, word, expected):
    (tmp_path / "test.zh").write_text(f"{word}\n" * 16)
    argv = arguments(corpus, tmp_path / "out", max_steps=1, metrics="bleu")
    main([*argv, "--test_target", str(tmp_path / "test.zh")])
    card = (tmp_path / "out" / "README.md").read_text()
    (row,) = [line for line in card.splitlines() if line.startswith("| bleu")]
    of_validation, of_test = row.split("; ")
    assert "tok:13a" in of_validation.partition("validation: ")[2]
    assert expected in of_test.partition("test: ")[2]


@pytest.mark.parametrize(
    ("language", "chosen", "expected"),
    [
        (None, None, "zh"),
        ("th", None, "char"),
        ("de", None, "13a"),
        ("yue", None, "zh"),
        ("ja", None, "ja-mecab"),  # Han is a part of Japanese
        ("th", "intl", "intl"),
    ],
)
def test_what_is_given_comes_before_what_is_recognised(language, chosen, expected):
    rows = Dataset.from_dict({"target": CHINESE, "corpus": ["a"] * 4})
    rows = with_languages(rows, (None, language))
    assert choose_score_tokenizers(rows, ["bleu"], chosen) == [expected] * 4
