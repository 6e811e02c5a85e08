"""What a run refuses before it writes or deletes anything, and what it keeps of what it loads."""

import json
import shutil

import pytest
from made_up_language import arguments, main
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, BartConfig, GenerationConfig

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.run.tokenizer_and_config import make_config


def without(argv, *names):
    """The arguments less those options and their values."""
    pairs = zip(argv[::2], argv[1::2], strict=True)
    return [text for pair in pairs if pair[0][2:] not in names for text in pair]


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def copy(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "copy")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_attention_heads": 4}, r"`encoder_attention_heads` 4 \(saved: 2\)"),
        ({"vocab_size": 99}, "not made anew: its vocab_size is 8000"),
        ({"tokenizer_kind": "bpe"}, "not made anew: its kind is 'word', not 'bpe'"),
        ({"do_train": False}, "`vanilla-transformer evaluate` scores a saved model"),
    ],
)
def test_options_that_contradict_the_loaded_model(trained, corpus, tmp_path, changes, message):
    changes = {"model_name_or_path": trained, **changes}
    with pytest.raises(ValueError, match=message):
        main(arguments(corpus, tmp_path / "out", "train", **changes))
    assert not (tmp_path / "out" / "README.md").exists()


@pytest.mark.parametrize("name", ["gated_ffn", "ffn_dropout"])
def test_a_field_that_the_saved_model_lacks_is_refused(shared_words, tmp_path, name):
    BartConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"`{name}` 0.5 \(saved: no such field\)"):
        make_config({name: 0.5}, shared_words, str(tmp_path))


def test_options_that_the_loaded_model_agrees_with(trained, corpus, tmp_path):
    changes = {"model_name_or_path": trained, "dropout": 0.3, "max_steps": 1, "vocab_size": 8000}
    main(arguments(corpus, tmp_path / "out", "train", **changes))
    saved = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert saved["dropout"] == 0.3
    assert saved["encoder_attention_heads"] == 2


def test_a_tokenizer_with_other_tokens_is_refused(trained, corpus, tmp_path):
    own = AutoTokenizer.from_pretrained(trained)
    words = [token[::-1] for token in own.get_vocab() if token not in own.all_special_tokens]
    VanillaTransformerTokenizer.train([" ".join(words)], kind="word").save_pretrained(
        tmp_path / "other"
    )
    assert len(AutoTokenizer.from_pretrained(tmp_path / "other")) == len(own)
    changes = {"model_name_or_path": trained, "tokenizer_name_or_path": tmp_path / "other"}
    with pytest.raises(ValueError, match=r"is not the tokenizer .* has the ids \S+ and \d+"):
        main(arguments(corpus, tmp_path / "out", "train", **changes))
    changes["tokenizer_name_or_path"] = trained
    main(arguments(corpus, tmp_path / "out", "train", **changes, max_steps=1))
    changes = {"teacher": trained, "tokenizer_name_or_path": tmp_path / "other"}
    with pytest.raises(ValueError, match=r"`teacher` .* has another tokenizer .* has the ids"):
        main(arguments(corpus, tmp_path / "student", "train", **changes))


def test_a_tokenizer_that_is_larger_than_the_model_is_refused(copy, corpus, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(copy)
    tokenizer.add_tokens(["<2de>"])
    tokenizer.save_pretrained(copy)
    with pytest.raises(ValueError, match=r"does not fit the model .*`vocab_size` \d+ \(tokenizer"):
        main(arguments(corpus, tmp_path / "out", "train", model_name_or_path=copy))


def test_the_search_of_a_file_is_evaluated_and_saved(corpus, tmp_path):
    search = GenerationConfig(max_length=7, num_beams=3, length_penalty=0.5)
    search.save_pretrained(tmp_path / "search")
    changes = {"generation_config": tmp_path / "search", "max_steps": 1}
    argv = arguments(corpus, tmp_path / "out", "train", "validation", **changes)
    argv = without(argv, "generation_num_beams", "generation_max_length")
    figures = main([*argv, "--generation_num_beams", "2"])
    kept = GenerationConfig.from_pretrained(tmp_path / "out")
    assert (kept.max_length, kept.num_beams, kept.length_penalty) == (7, 2, 0.5)
    assert kept.decoder_start_token_id is not None
    assert figures["eval_gen_len"] <= 7


def test_the_search_of_a_saved_model_stays_unless_said(copy, corpus, tmp_path):
    search = GenerationConfig.from_pretrained(copy)
    search.update(num_beams=3, max_length=11, length_penalty=0.7, early_stopping="never")
    search.save_pretrained(copy)
    changes = {"model_name_or_path": copy, "max_steps": 1}
    names = ("generation_num_beams", "generation_max_length")
    main(without(arguments(corpus, tmp_path / "kept", "train", **changes), *names))
    kept = GenerationConfig.from_pretrained(tmp_path / "kept")
    found = (kept.num_beams, kept.max_length, kept.length_penalty, kept.early_stopping)
    assert found == (3, 11, 0.7, "never")
    argv = without(arguments(corpus, tmp_path / "said", "train", **changes), names[1])
    main(argv)
    said = GenerationConfig.from_pretrained(tmp_path / "said")
    assert (said.num_beams, said.max_length, said.early_stopping) == (2, 11, "never")


@pytest.mark.parametrize("needed", ["model", "data", "links", "recipe"])
def test_overwriting_does_not_delete_what_the_run_needs(copy, corpus, needed):
    argv = arguments(corpus, copy, "train", overwrite=True)
    if needed == "model":
        argv += ["--model_name_or_path", str(copy)]
    if needed == "data":
        shutil.copy(corpus / "val.en", copy)
        argv += ["--test_source", str(copy / "val.en"), "--test_target", str(corpus / "val.de")]
    if needed == "links":
        (copy / "train.align").write_text("0-0\n" * 400)
        argv += ["--guided_alignment", str(copy / "train.align")]
    if needed == "recipe":
        (copy / "recipe.yaml").write_text("seed: 1\n")
        argv = [str(copy / "recipe.yaml"), *argv]
    before = contents(copy)
    with pytest.raises(ValueError, match=r"is read, and lies|part of no model"):
        main(argv)
    assert contents(copy) == before


def test_a_directory_that_cannot_be_written_to_is_named_at_once(corpus):
    with pytest.raises(ValueError, match="'/proc/self' cannot be written to"):
        main(arguments(corpus, "/proc/self", "train"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_attention_heads": 3}, "divisible"),
        ({"eval_strategy": "epoch"}, "eval_dataset"),
        ({"learning_rate": -1}, "Invalid learning rate"),  # only when the training begins
    ],
    ids=lambda changes: next(iter(changes)) if isinstance(changes, dict) else "",
)
def test_a_refused_run_deletes_nothing(copy, corpus, changes, message):
    before = contents(copy)
    with pytest.raises(ValueError, match=message):
        main(arguments(corpus, copy, "train", overwrite=True, **changes))
    assert contents(copy) == before
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


def test_resuming_what_cannot_be_resumed(copy, corpus):
    argv = arguments(corpus, copy, "train")
    with pytest.raises(ValueError, match="'nowhere' is an incomplete checkpoint"):
        main([*argv, "--resume_from_checkpoint", "nowhere"])
    for checkpoint in copy.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    before = contents(copy)
    with pytest.raises(ValueError, match="holds no checkpoint to resume from"):
        main([*argv, "--resume_from_checkpoint", "True"])
    assert contents(copy) == before


def test_a_resumed_run_has_the_architecture_of_its_checkpoint(copy, corpus):
    changes = {"resume_from_checkpoint": True, "max_steps": 134}
    argv = without(arguments(corpus, copy, "train", **changes), "d_model", "encoder_ffn_dim")
    main(argv)
    assert AutoModelForSeq2SeqLM.from_pretrained(copy).config.d_model == 32
    with pytest.raises(ValueError, match=r"`d_model` 64 \(saved: 32\)"):
        main([*argv, "--d_model", "64"])


def test_a_finished_directory_is_safe_from_a_run_resumed_from_elsewhere(copy, corpus, tmp_path):
    argv = arguments(corpus, tmp_path / "other", "train", max_steps=1, save_steps=1)
    main([*argv, "--save_strategy", "steps"])
    checkpoint = str(tmp_path / "other" / "checkpoint-1")
    before = contents(copy)
    argv = arguments(corpus, copy, "train", max_steps=2, resume_from_checkpoint=checkpoint)
    with pytest.raises(ValueError, match="is not empty"):
        main(argv)
    assert contents(copy) == before
    main([*argv, "--overwrite"])
    assert not (copy / "checkpoint-132").exists()
    assert (copy / "model.safetensors").exists()
    argv = arguments(corpus, tmp_path, "train", resume_from_checkpoint=checkpoint)
    with pytest.raises(ValueError, match="part of no model"):
        main([*argv, "--overwrite"])


def test_a_line_that_is_too_long_is_named_by_its_file(tmp_path):
    """The pairs that were skipped before it count."""
    sides = [tmp_path / name for name in ("train.en", "train.de")]
    for path, short in zip(sides, ("a dog", "Hund"), strict=True):
        path.write_text("\n".join([short, "", short, short * 40, short]) + "\n")
    options = {"tokenizer_kind": "char", "max_tokens": 60}
    options |= {"train_source": sides[0], "train_target": sides[1], "output_dir": tmp_path / "out"}
    with pytest.raises(ValueError, match=rf"Line 4 of {sides[0]}, {sides[1]} has 201 source and 1"):
        main([word for name, value in options.items() for word in (f"--{name}", str(value))])


def test_a_search_that_cannot_be_scored_is_refused_before_the_training(corpus, tmp_path):
    search = {"num_beams": 1, "length_penalty": 0.7}
    (tmp_path / "generation_config.json").write_text(json.dumps(search))
    argv = arguments(corpus, tmp_path / "out", generation_config=tmp_path)
    with pytest.raises(ValueError, match="length_penalty"):
        main(without(argv, "generation_num_beams"))
    assert not (tmp_path / "out").exists()
