"""A model that the stock `Seq2SeqTrainer` has evaluated and saved generates as it should."""

import pytest
from tiny_training import callback, losses, model, rows, stock, tokenizer
from transformers import AutoModelForSeq2SeqLM, GenerationConfig, HfArgumentParser, pipeline

from vanilla_transformer.model.generation import DEFAULT_MAX_LENGTH
from vanilla_transformer.model.sharing import GENERATION_TASK
from vanilla_transformer.search import Search
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

SOURCE = "w1 w2 w3"


def endless(**changes):
    """A model that never ends an output by itself."""
    net = model(lm_head_bias=True, **changes)
    net.lm_head.bias.data[net.config.eos_token_id] = -1e4
    return net


def evaluated(folder, net, **options):
    """Evaluates a model as the stock trainer does, which fills in defaults, and saves it."""
    made = stock(
        folder,
        net,
        rows(2, seed=1),
        metrics=lambda found: {"longest": float(found.predictions.shape[1])},
        predict_with_generate=True,
        **options,
    )
    figures = made.evaluate()
    made.save_model()
    return figures


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stock")
    figures = evaluated(folder, endless())
    assert figures["eval_longest"] == DEFAULT_MAX_LENGTH
    assert GenerationConfig.from_pretrained(folder).early_stopping is False  # it was filled in
    return folder


def test_no_output_is_cut_at_the_default_of_transformers(saved):
    loaded = AutoModelForSeq2SeqLM.from_pretrained(saved)
    inputs = tokenizer()(SOURCE, return_tensors="pt")
    assert loaded.generate(**inputs).shape[1] == DEFAULT_MAX_LENGTH
    assert loaded.generation_config.early_stopping is None
    (output,) = pipeline(GENERATION_TASK, str(saved), device="cpu")(SOURCE)
    assert len(output["generated_text"].split()) == DEFAULT_MAX_LENGTH - 1


def test_a_chosen_default_stays_unless_a_trainer_has_filled_in_the_others(tmp_path):
    net = endless()
    net.generation_config.max_length = 20
    net.save_pretrained(tmp_path / "chosen")
    evaluated(tmp_path / "filled", net)
    for name, longest in {"chosen": 20, "filled": DEFAULT_MAX_LENGTH}.items():
        loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name)
        assert loaded.generation_config.max_length == longest
        settings = GenerationConfig.from_pretrained(tmp_path / name)
        assert Search.resolve(settings, {}).max_new_tokens == longest - 1
    loaded.generation_config.max_length = 20
    loaded.save_pretrained(tmp_path / "again")
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again")
    assert again.generation_config.max_length == 20


@pytest.mark.parametrize(
    ("own", "of_trainer"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.1)], ids=["none", "config", "trainer"]
)
def test_the_gradient_of_24_examples_is_the_same_under_accumulation(tmp_path, own, of_trainer):
    """Their lengths differ much, so that a mean of means is far from the mean."""
    gradients, logged = [], []

    def keep(state, control, net):
        gradients.append({name: p.grad.clone() for name, p in net.named_parameters()})

    for batch_size, steps in ((24, 1), (6, 4), (3, 8), (12, 2)):
        made = stock(
            tmp_path,
            model(dropout=0.0, label_smoothing=own),
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=steps,
            max_steps=1,
            max_grad_norm=0.0,
            logging_steps=1,
            label_smoothing_factor=of_trainer,
            save_strategy="no",
            train_sampling_strategy="sequential",
        )
        made.add_callback(callback("on_pre_optimizer_step", keep))
        made.train()
        logged.append(losses(made)[1])
    net = model(dropout=0.0, label_smoothing=own or of_trainer).train()
    net(**made.data_collator(rows())).loss.backward()
    keep(None, None, net)
    norm = sum(g.square().sum() for g in gradients[0].values()).sqrt()
    for other in gradients[1:]:
        difference = sum((other[n] - g).square().sum() for n, g in gradients[0].items()).sqrt()
        assert difference / norm < 1e-4
    assert logged == pytest.approx([logged[0]] * 4, rel=1e-4)


def test_a_script_of_its_own_parses_the_arguments_with_the_parser_of_transformers(tmp_path):
    words = ["--output_dir", str(tmp_path), "--max_tokens"]
    parser = HfArgumentParser(TokenBudgetTrainingArguments)
    (arguments,) = parser.parse_args_into_dataclasses([*words, "512"])
    assert arguments.max_tokens == 512
    with pytest.raises(ValueError, match="max_tokens"):
        parser.parse_args_into_dataclasses([*words, "0"])
