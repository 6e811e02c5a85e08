"""A student that learns the predictions of teachers: the formula, and a run."""

import json

import pytest
import torch
from made_up_language import arguments, main
from test_rdrop import batch, gradients_of_a_step
from tiny_training import model, trainer

from vanilla_transformer.training.objectives import Teachers


def other_model(seed):
    net = model(dropout=0.3, d_model=8)
    torch.manual_seed(seed)
    for weight in net.parameters():
        torch.nn.init.normal_(weight)
    return net.train()


def test_the_student_learns_the_mean_of_all_teachers():
    models, inputs = [other_model(1), other_model(2)], batch(model())
    labels = inputs["labels"]
    teachers = Teachers(models)
    logits = torch.randn(2 * len(labels), labels.shape[1], model().config.vocab_size)
    found = teachers.divergence(logits, inputs)
    expected = 0.0
    given = {name: value for name, value in inputs.items() if name != "labels"}
    means = sum(one.eval()(**given).logits.softmax(-1) for one in models) / 2
    for row, column in (labels != -100).nonzero().tolist():
        p = means[row, column]
        for copy in logits.chunk(2):
            q = copy[row, column].softmax(-1)
            expected = expected + (p * (p / q).log()).sum() / 2
    torch.testing.assert_close(found, expected)
    assert not any(one.training or w.requires_grad for one in models for w in one.parameters())


@pytest.mark.parametrize("options", [{}, {"rdrop_alpha": 5.0}], ids=["plain", "rdrop"])
def test_a_run_divides_what_teachers_add_as_the_plain_loss(tmp_path, monkeypatch, options):
    def gradients(weight, teacher, steps, **options):
        def with_teachers(*args, **kwargs):
            teachers = teacher and Teachers([teacher], weight)
            return trainer(*args, extra={"teachers": teachers}, **kwargs)

        monkeypatch.setattr("test_rdrop.trainer", with_teachers)
        sizes = {"gradient_accumulation_steps": steps, "per_device_train_batch_size": 16 // steps}
        return gradients_of_a_step(tmp_path, **sizes, **options)

    plain, student = gradients(0.0, None, 1), model(dropout=0.3)
    same = gradients(0.25, student, 4, **options)  # without a divergence, its weight is left out
    one, four = (gradients(0.25, other_model(1), steps, **options) for steps in (1, 4))
    for name, value in plain.items():
        torch.testing.assert_close(same[name], 0.75 * value, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(four[name], one[name], rtol=1e-4, atol=1e-6)
    assert any((one[name] - 0.75 * value).abs().max() > 1e-3 for name, value in plain.items())


def test_a_student_comes_close_to_its_teacher_without_labels(trained, corpus, tmp_path):
    options = {"teacher": trained, "teacher_weight": 1.0, "tokenizer_name_or_path": trained}
    splits = ("train", "validation")
    main(arguments(corpus, tmp_path / "student", *splits, seed=7, **options))
    figures = json.loads((tmp_path / "student" / "all_results.json").read_text())
    assert figures["eval_bleu"] > 50
    assert "--teacher_weight" in (tmp_path / "student" / "README.md").read_text()
