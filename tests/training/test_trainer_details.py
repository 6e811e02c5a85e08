"""Common pitfalls of Trainer: each of these fails with some model or some setting."""

import pytest
import torch
from tiny_training import losses, model, rows, stock, tokenizer, trainer
from transformers import EarlyStoppingCallback

from vanilla_transformer.training.metrics import GenerationMetrics

GENERATE = {"predict_with_generate": True, "generation_max_length": 9}


def test_padding_by_minus_100_in_predictions_is_scored(tmp_path):
    scorer, seen = GenerationMetrics(tokenizer(), ["bleu", "wer"], ["a b"] * 7), []

    def score(prediction):
        seen.append(prediction)
        return scorer(prediction)

    made = stock(tmp_path, model(), rows(7), score, per_device_eval_batch_size=2, **GENERATE)
    assert "eval_bleu" in made.evaluate(max_length=6)
    seen[0].predictions[:, -1] = -100  # as where processes or batches differ in length
    assert {"bleu", "wer", "gen_len"} <= scorer(seen[0]).keys()
    assert len(scorer.last.predictions) == 7


def test_the_length_penalty_of_the_arguments_is_that_of_every_evaluation(tmp_path, monkeypatch):
    made = trainer(
        tmp_path,
        extra={"compute_metrics": lambda prediction: {}},  # without it, nothing is generated
        generation_num_beams=2,
        generation_length_penalty=-1.5,
        **GENERATE,
    )
    penalties = []
    generate = made.model.generate

    def watched(*args, **options):
        penalties.append(options["generation_config"].length_penalty)
        return generate(*args, **options)

    monkeypatch.setattr(made.model, "generate", watched)
    made.evaluate(rows(2))
    made.predict(rows(2))
    made.evaluate(rows(2), length_penalty=2.0)
    made.evaluate(rows(2), num_beams=1)
    assert penalties == [-1.5, -1.5, 2.0, None]


def test_an_evaluation_leaves_the_settings_of_the_model(tmp_path):
    """The stock trainer fills in every default, and saves these with the model."""
    made = trainer(tmp_path, extra={"compute_metrics": lambda prediction: {}}, **GENERATE)
    before = made.model.generation_config.to_dict()
    made.evaluate(rows(2))
    assert made.model.generation_config.to_dict() == before


@pytest.mark.parametrize("checkpointing", [False, True])
def test_bfloat16_autocast_and_checkpointed_layers(tmp_path, checkpointing):
    options = {"max_steps": 4, "logging_steps": 1, "learning_rate": 0.01}
    full, half = (
        trainer(tmp_path, net=model(dropout=0.0), **options, **more)
        for more in ({}, {"bf16": True, "activation_checkpointing": checkpointing})
    )
    full.train()
    half.train()
    assert {p.dtype for p in half.model.parameters()} == {torch.float32}
    assert losses(half) != losses(full)
    assert losses(half) == pytest.approx(losses(full), rel=0.02)


# The best model, and when to stop ---------------------------------------------------------------


def scored(folder, values, patience=None, name="wer", **options):
    """A trainer whose metric has these values, one per evaluation."""
    scores = iter(values)
    extra = {"compute_metrics": lambda prediction: {name: next(scores)}}
    options = {"max_steps": 6, "metric_for_best_model": name, **CHOOSING, **options}
    return trainer(folder, early_stopping_patience=patience, extra=extra, **options)


CHOOSING = {
    "eval_strategy": "steps",
    "eval_steps": 1,
    "save_strategy": "steps",
    "save_steps": 1,
    "load_best_model_at_end": True,
}


@pytest.mark.parametrize(
    ("name", "values", "best", "last"),
    [
        ("wer", [90.0, 50.0, 60.0, 70.0, 80.0, 10.0], 2, 4),
        ("bleu", [1.0, 5.0, 4.0, 3.0, 2.0, 9.0], 2, 4),
        ("chrf", [1.0, 2.0, 1.0, 3.0, 1.0, 1.0], 4, 6),
        ("bleu", [1.0, 5.0, 5.0, 4.0, 3.0, 9.0], 3, 4),  # of equal scores the later one
    ],
)
@pytest.mark.parametrize("prefix", ["", "eval_"])
def test_the_best_by_a_score_and_an_early_stop(tmp_path, name, values, best, last, prefix):
    stops = [EarlyStoppingCallback(2)]
    options = {"metric_for_best_model": prefix + name, "callbacks": stops}
    made = scored(tmp_path, values, 2, name, **options)
    made.train()
    assert made.args.greater_is_better is (name != "wer")
    assert made.state.best_model_checkpoint.endswith(f"checkpoint-{best}")
    assert made.state.global_step == last


@pytest.mark.parametrize(
    ("values", "best", "last", "rate"),
    [
        ({"bleu": [0.0] * 6, "chrf": [1.0, 2.0, 3.0, 4.0, 3.0, 3.0]}, 4, 6, 0.01),
        ({"bleu": [0.0] * 6, "chrf": [0.0] * 6}, 6, 6, 0.01),  # the loss falls
        ({"bleu": [0.0] * 6}, 6, 6, 0.01),
        ({"wer": [100.0] * 6}, 6, 6, 0.01),
        ({"bleu": [0.0] * 3 + [1.0, 0.5, 0.0], "chrf": [3.0, 1.0, 4.0] + [1.0] * 3}, 4, 6, 0.01),
        ({"bleu": [0.0] * 6, "chrf": [5.0, 3.0, 4.0, 6.0, 7.0, 8.0]}, 1, 3, 0.0),
        ({"bleu": [0.0] * 6, "chrf": [5.0] + [3.0] * 5}, 1, 6, 0.01),
    ],
)
def test_a_score_that_tells_nothing_neither_chooses_nor_stops(tmp_path, values, best, last, rate):
    rows = iter([dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)])
    extra = {"compute_metrics": lambda prediction: next(rows)}
    options = {"max_steps": 6, "metric_for_best_model": next(iter(values)), **CHOOSING}
    made = trainer(tmp_path, early_stopping_patience=2, extra=extra, learning_rate=rate, **options)
    made.train()
    assert made.state.best_model_checkpoint.endswith(f"checkpoint-{best}")
    assert made.state.global_step == last


def test_an_evaluation_before_the_first_step_does_not_stop_a_training(tmp_path):
    made = scored(tmp_path / "new", [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0], 1, eval_on_start=True)
    made.train()
    assert made.state.global_step == 6
    scored(tmp_path, [9.0, 3.0, 4.0], 2, eval_on_start=True, stop_at=2).train()
    resumed = scored(tmp_path, [4.0, 2.0, 1.0, 0.9, 0.8], 2, eval_on_start=True)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 6


def test_a_trainer_that_has_stopped_early_trains_again(tmp_path):
    made = scored(tmp_path, [1.0, 2.0, 3.0] * 2, 2)
    for _ in range(2):
        made.train()
        assert made.state.global_step == 3


@pytest.mark.parametrize(
    ("before", "after", "last"), [(3, None, 6), (3, 1, 2), (3, 3, 4), (3, 4, 5), (None, 2, 4)]
)
def test_the_patience_of_a_resumed_run_is_its_own(tmp_path, before, after, last):
    scored(tmp_path, [1.0, 2.0], before, stop_at=2).train()
    second = scored(tmp_path, [3.0] * 6, after)
    second.train(resume_from_checkpoint=True)
    assert second.state.global_step == last


@pytest.mark.parametrize(
    "options",
    [
        {"per_device_eval_batch_size": 4},
        {"per_device_eval_batch_size": 4, "predict_with_generate": True},
        {"per_device_eval_batch_size": 4, "label_smoothing_factor": 0.1},
        {"eval_max_tokens": 60},
    ],
    ids=["batches", "generation", "smoothing", "tokens"],
)
def test_the_loss_of_an_evaluation_is_the_mean_over_its_labels(tmp_path, options):
    """Batches of other sizes hold other shares of the labels."""
    data, net = rows(9, seed=1), model()
    made = trainer(tmp_path, net=net, extra={"eval_dataset": data}, **options)
    smoothing = options.get("label_smoothing_factor", 0.0)
    total = sum(token_losses(net, row, smoothing).sum().item() for row in data)
    expected = total / sum(len(row["labels"]) for row in data)
    assert made.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)


def token_losses(net, row, smoothing):
    """Returns the loss of each label of one row, as the stock trainer smooths it."""
    ids, labels = (torch.tensor([row[name]]) for name in ("input_ids", "labels"))
    with torch.no_grad():
        log_probabilities = net.eval()(input_ids=ids, labels=labels).logits.log_softmax(-1)[0]
    chosen = -log_probabilities[torch.arange(labels.shape[1]), labels[0]]
    return (1 - smoothing) * chosen - smoothing * log_probabilities.mean(-1)


@pytest.mark.parametrize(("changes", "looks"), [({}, False), ({"encoder_layerdrop": 0.1}, True)])
def test_ddp_looks_for_unused_parameters_only_where_layers_are_dropped(tmp_path, changes, looks):
    def handler(**options):
        return trainer(tmp_path, net=model(**changes), **options).accelerator.ddp_handler

    assert handler().find_unused_parameters is looks
    assert handler(ddp_find_unused_parameters=True).find_unused_parameters


def test_noise_on_embeddings_does_not_depend_on_the_batch(tmp_path):
    """NEFTune divides by the length of the embeddings, which padding-free training would change."""
    net = model(dropout=0.0).train()
    assert net.takes_shortcuts({})
    made = trainer(tmp_path, net=net, max_steps=1, neftune_noise_alpha=5.0)
    seen, step = [], made.training_step

    def watched(*args):
        seen.append(net.takes_shortcuts({}))
        return step(*args)

    made.training_step = watched
    made.train()
    assert seen == [False]
    assert net.takes_shortcuts({})


def test_a_compiled_training_leaves_out_padding(tmp_path):
    trained, shapes = [], []
    for options in ({}, {"torch_compile": True, "torch_compile_backend": "eager"}):
        net = model(dropout=0.0)
        net.model.decoder.layers[0].register_forward_hook(
            lambda layer, inputs, states: shapes.append(tuple(states.shape))
        )
        run = trainer(tmp_path / str(len(shapes)), net=net, max_steps=3, **options)
        run.train()
        trained.append(losses(run))
    assert trained[0] == pytest.approx(trained[1], rel=1e-4)
    assert shapes[:3] == shapes[3:]
    assert {shape[0] for shape in shapes} == {1}  # (1, tokens, d_model)
