"""What a run decides before its model is made, and that nothing given to it changes."""

from copy import deepcopy
from types import SimpleNamespace

import pytest
import tiny_training
from datasets import Dataset, DatasetDict
from made_up_language import arguments
from transformers import GenerationConfig

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.run import texts
from vanilla_transformer.run.arguments import parse_arguments
from vanilla_transformer.run.assembly import Assembly, make_model
from vanilla_transformer.run.loaded_data import load_data
from vanilla_transformer.run.plan import make_plan, watched_metric
from vanilla_transformer.run.training_run import run

UNCHOSEN = ["--choose_defaults", "False"]
SCORED = ["--eval_strategy", "epoch", "--save_strategy", "epoch"]


def plan_of(tmp_path, *options):
    """The plan of a run of a new model."""
    tiny_training.tokenizer().save_pretrained(tmp_path / "words")
    files = {"output_dir": tmp_path / "out", "tokenizer_name_or_path": tmp_path / "words"}
    given = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    parsed = parse_arguments([*given, "--use_cpu", "True", "--d_model", "16", *UNCHOSEN, *options])
    pair = Dataset.from_dict({"source": ["w1"], "target": ["w2"]})
    arguments, loaded = load_data(parsed, DatasetDict(train=pair, test=pair))
    return make_plan(arguments, loaded)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "sdpa"),
        (["--bf16", "True"], "eager"),
        (["--bf16", "True", "--attn_implementation", "sdpa"], "sdpa"),
        (["--attn_implementation", "flex_attention"], "flex_attention"),
    ],
)
def test_half_precision_on_a_cpu_takes_eager_attention(tmp_path, options, expected):
    plan = plan_of(tmp_path, *options)
    assert plan.attention == expected
    assert make_model(plan).config._attn_implementation == expected


@pytest.mark.parametrize(
    "options", [["--attn_implementation", "fast"], ["--activation_function", "fast"]]
)
def test_a_model_that_cannot_be_made_is_refused_before_the_data_are_encoded(tmp_path, options):
    with pytest.raises((KeyError, ValueError), match="fast"):
        plan_of(tmp_path, *options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], (None, None)),
        (["--load_best_model_at_end", "True"], ("bleu", True)),
        (["--early_stopping_patience", "1", "--metrics", "wer"], ("wer", False)),
        (["--load_best_model_at_end", "True", "--metrics", "ter"], ("ter", False)),
        (["--load_best_model_at_end", "True", "--prediction_loss_only", "True"], ("loss", False)),
        (
            ["--load_best_model_at_end", "True", "--lr_scheduler_type", "reduce_lr_on_plateau"],
            ("loss", False),
        ),
    ],
)
def test_the_first_metric_selects_unless_another_is_given(tmp_path, options, expected):
    parsed = parse_arguments(["--output_dir", str(tmp_path), *SCORED, *UNCHOSEN, *options])
    assert watched_metric(parsed) == expected


@pytest.mark.parametrize(
    ("options", "limits", "longest"),
    [
        ([], (None, None), 256),
        (["--max_source_length", "7"], (7, None), 256),
        (
            ["--position_embedding_type", "learned", "--max_position_embeddings", "5"],
            (5, 5),
            5,
        ),
        (
            ["--position_embedding_type", "learned", "--max_target_length", "9"],
            (1024, 9),
            256,
        ),
    ],
)
def test_learned_positions_limit_the_lengths(tmp_path, options, limits, longest):
    plan = plan_of(tmp_path, *options)
    assert (plan.max_source_length, plan.max_target_length) == limits
    assert plan.search.settings.max_length == plan.training.generation_max_length == longest


def test_a_run_changes_nothing_that_it_is_given(corpus, tmp_path):
    changes = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    changes |= {"eval_strategy": "steps", "eval_steps": 1, "position_embedding_type": "learned"}
    GenerationConfig(num_beams=2).save_pretrained(tmp_path / "search")
    changes["generation_config"] = str(tmp_path / "search")
    parsed = parse_arguments(arguments(corpus, tmp_path / "out", **changes))
    data = load_parallel_data(parsed.data).splits
    _ = parsed.training.device  # made when first asked for
    before, splits = deepcopy(vars(parsed.training)), dict(data)
    topics = deepcopy([vars(parsed.model), vars(parsed.tokenizer), parsed.architecture])
    run(parsed, data)
    after = vars(parsed.training)
    assert before.keys() == after.keys()
    assert {n for n in before if repr(before[n]) != repr(after[n])} == set()
    assert topics == [vars(parsed.model), vars(parsed.tokenizer), parsed.architecture]
    assert dict(data) == splits


def test_a_config_is_not_changed_for_a_language_that_targets_begin_with(monkeypatch):
    begin = SimpleNamespace(begin=(("decoder_start_token_id", 5),))
    monkeypatch.setattr(texts.Direction, "resolve", lambda *_: begin)
    rows = Dataset.from_dict({"source": ["w1"], "target": ["w2"]})
    given, settings = VanillaTransformerConfig(decoder_start_token_id=2), GenerationConfig()
    config, changed = texts._begin_with_language(given, settings, None, {"train": rows})
    starts = [made.decoder_start_token_id for made in (config, changed, given, settings)]
    assert starts == [5, 5, 2, None]


def test_scores_and_their_timing_leave_the_scorer_of_the_training(corpus, tmp_path):
    parsed = parse_arguments(arguments(corpus, tmp_path / "out", "train", "validation"))
    made = Assembly.of(make_plan(*load_data(parsed)))
    own = made.trainer.compute_metrics
    assert made.seconds_per_text("validation", 2, with_intervals=False) > 0
    assert made.trainer.compute_metrics is own
    assert len(made.score("validation", 2)[0]) == 2
    assert made.trainer.compute_metrics is own


@pytest.mark.parametrize(("count", "is_warned"), [(1, True), (2, False), (3, False)])
def test_a_single_pair_is_warned_of(tmp_path, heard, count, is_warned):
    pairs = {"source": ["w1", "w2", "w3"][:count], "target": ["w4", "w5", "w6"][:count]}
    parsed = parse_arguments(["--output_dir", str(tmp_path / "out"), "--use_cpu", "True"])
    load_data(parsed, DatasetDict(train=Dataset.from_dict(pairs)))
    warned = ["one training pair" in record.getMessage() for record in heard.records]
    assert any(warned) == is_warned


@pytest.mark.parametrize("target", ["w2", "w3"])
def test_equal_sides_are_warned_of(tmp_path, heard, target):
    pairs = Dataset.from_dict({"source": ["w1", "w2"], "target": ["w1", target]})
    parsed = parse_arguments(["--output_dir", str(tmp_path / "out"), "--use_cpu", "True"])
    load_data(parsed, DatasetDict(train=pairs))
    warned = ["equal to their sources" in record.getMessage() for record in heard.records]
    assert any(warned) == (target == "w2")


def test_data_without_pairs_to_train_on_are_refused(tmp_path):
    pairs = Dataset.from_dict({"source": ["w1"], "target": ["w2"]})
    parsed = parse_arguments(["--output_dir", str(tmp_path / "out"), "--use_cpu", "True"])
    with pytest.raises(ValueError, match="A run trains: give training data"):
        load_data(parsed, DatasetDict(test=pairs))


@pytest.mark.parametrize("positions", [20, 40, 255])
def test_few_learned_positions_limit_outputs_without_a_warning(corpus, tmp_path, heard, positions):
    changes = {"position_embedding_type": "learned", "max_position_embeddings": positions}
    changes |= {
        "max_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "generation_max_length": 256,
    }
    run(parse_arguments(arguments(corpus, tmp_path / "out", "train", "validation", **changes)))
    told = [record.getMessage() for record in heard.records]
    assert [words for words in told if "position" in words or "exceed" in words] == []
    saved = GenerationConfig.from_pretrained(tmp_path / "out")
    assert saved.max_length == positions
