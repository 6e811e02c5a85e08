"""A tiny model and a trainer on random rows, for tests of training runs."""

import torch
from transformers import (
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    set_seed,
)

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTokenizer,
)
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

WORDS = [f"w{i}" for i in range(30)]
SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
}


def tokenizer():
    return VanillaTransformerTokenizer.train([" ".join(WORDS)], kind="word")


def rows(count=24, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def row(longest):
        length = int(torch.randint(1, longest, (1,), generator=generator))
        return [*torch.randint(4, 30, (length,), generator=generator).tolist(), 2]

    made = [{"input_ids": row(8), "labels": row(12)} for _ in range(count)]
    return [{**one, "attention_mask": [1] * len(one["input_ids"])} for one in made]


def linked_rows(count=24, seed=0):
    """Rows with a link for about half of the target tokens, for some of them two."""
    generator = torch.Generator().manual_seed(seed)
    made = rows(count, seed)
    for row in made:
        pairs = set()
        for target in range(len(row["labels"]) - 1):
            number = int(torch.randint(0, 3, (1,), generator=generator))
            for _ in range(number):
                source = int(torch.randint(len(row["input_ids"]), (1,), generator=generator))
                pairs.add((source, target))
        row["alignment"] = sorted(pairs)
    made[0]["alignment"] = []
    return made


def model(**changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer()), **SIZES, **changes}
    return VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(**sizes))


class StopAt(TrainerCallback):
    """Stops the training after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.step


def callback(event, function):
    """Returns a callback that calls a function of state, control and model at an event."""
    made = TrainerCallback()

    def called(args, state, control, model=None, **kwargs):
        function(state, control, model)

    setattr(made, event, called)
    return made


def trainer(folder, stop_at=None, callbacks=(), data=None, net=None, extra=None, **options):
    set_seed(1)
    words = tokenizer()
    net = net or model()
    options = {
        "per_device_train_batch_size": 4,
        "save_strategy": "no",
        "logging_strategy": "steps",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        **options,
    }
    stop = [] if stop_at is None else [StopAt(stop_at)]
    made = TokenBudgetSeq2SeqTrainer(
        model=net,
        args=TokenBudgetTrainingArguments(str(folder), **options),
        train_dataset=data or rows(),
        data_collator=DataCollatorForSeq2Seq(words, model=net),
        processing_class=words,
        callbacks=[*callbacks, *stop],
        **{"eval_dataset": rows(6, seed=1), **(extra or {})},
    )
    note = callback(
        "on_train_begin", lambda state, *_: setattr(made, "began_at", state.global_step)
    )
    made.add_callback(note)
    return made


class ScheduleFree(torch.optim.SGD):
    """As in `schedulefree`: the optimizer evaluates other weights than it trains."""

    def _move_weights(self, is_training, distance):
        for group in self.param_groups:
            if group.setdefault("train_mode", True) != is_training:
                group["train_mode"] = is_training
                for weight in group["params"]:
                    weight.data += distance

    def train(self):
        self._move_weights(True, -0.5)

    def eval(self):
        self._move_weights(False, 0.5)


def stock(folder, net, eval_rows=None, metrics=None, optimizers=(None, None), **options):
    """Returns a trainer of transformers."""
    words = tokenizer()
    options = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, **options}
    return Seq2SeqTrainer(
        model=net,
        args=Seq2SeqTrainingArguments(str(folder), **options),
        train_dataset=rows(),
        eval_dataset=eval_rows,
        data_collator=DataCollatorForSeq2Seq(words, model=net),
        processing_class=words,
        compute_metrics=metrics,
        optimizers=optimizers,
    )


def assert_same_weights(one, other):
    """Two trainers have the same model, bit for bit."""
    for (name, value), second in zip(
        one.model.state_dict().items(), other.model.state_dict().values(), strict=True
    ):
        assert torch.equal(value, second), name


def logged(run, name):
    return {row["step"]: row[name] for row in run.state.log_history if name in row}


def losses(run):
    return logged(run, "loss")


def assert_resumes_exactly(make, folder, stop, saved_at=None):
    """A run that stops and is resumed ends as a whole one; returns the three trainers.

    `make(folder, **options)` makes a trainer.
    """
    whole = make(folder / "whole")
    whole.train()
    saving = {"save_strategy": "steps", "save_steps": saved_at or stop}
    stopped = make(folder / "parts", stop_at=stop, **saving)
    stopped.train()
    resumed = make(folder / "parts")
    resumed.train(resume_from_checkpoint=True)
    assert resumed.began_at == (saved_at or stop)
    assert losses(resumed) == losses(whole)
    assert_same_weights(resumed, whole)
    return whole, stopped, resumed


def record_batches(run):
    """Keeps the inputs of each training batch in `run.seen`."""
    run.seen, step = [], run.training_step

    def recorded(model, inputs, *args, **kwargs):
        run.seen.append(inputs)
        return step(model, inputs, *args, **kwargs)

    run.training_step = recorded
    return run


def rates(run):
    return logged(run, "learning_rate")
