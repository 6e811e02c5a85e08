"""A tiny training run that records its batches; also a program, for several processes."""

import json
import sys
from pathlib import Path

import numpy as np
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    set_seed,
)
from watch import StopAt

from vanilla_transformer.training.metrics import GenerationMetrics
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

EXAMPLES = 101
MAX_TOKENS = 160


def examples() -> Dataset:
    """Returns examples whose tokens are 4 + the index of the example."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 20, size=(EXAMPLES, 2))
    return Dataset.from_dict(
        {
            "input_ids": [[4 + i] * n for i, n in enumerate(lengths[:, 0])],
            "attention_mask": [[1] * n for n in lengths[:, 0]],
            "labels": [[4 + i] * (n - 1) + [2] for i, n in enumerate(lengths[:, 1])],
        }
    )


def tokenizer() -> PreTrainedTokenizerFast:
    words = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(EXAMPLES))]
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", pad_token="<pad>", eos_token="</s>"
    )


def model() -> MarianMTModel:
    sizes = {f"{side}_layers": 1 for side in ("encoder", "decoder")}
    sizes |= {f"{side}_attention_heads": 1 for side in ("encoder", "decoder")}
    sizes |= {f"{side}_ffn_dim": 8 for side in ("encoder", "decoder")}
    tokens = {
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": 2,
    }
    return MarianMTModel(MarianConfig(vocab_size=4 + EXAMPLES, d_model=8, **sizes, **tokens))


class RecordingTrainer(TokenBudgetSeq2SeqTrainer):
    """Records the indices and the padded size of every training batch."""

    def training_step(self, model, inputs, *args, **kwargs):
        self.seen.append((inputs["input_ids"][:, 0] - 4).tolist())
        self.sizes.append(inputs["input_ids"].numel() + inputs["labels"].numel())
        return super().training_step(model, inputs, *args, **kwargs)


def trainer(output_dir, stop_at=None, **arguments) -> RecordingTrainer:
    set_seed(1)
    arguments = {
        "max_tokens": MAX_TOKENS,
        "num_train_epochs": 3,
        "save_steps": 1,
        "logging_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "predict_with_generate": True,
        "generation_max_length": 4,
        **arguments,
    }
    made = tokenizer()
    net = model()
    result = RecordingTrainer(
        model=net,
        args=TokenBudgetTrainingArguments(output_dir=str(output_dir), **arguments),
        train_dataset=examples(),
        eval_dataset=examples(),
        data_collator=DataCollatorForSeq2Seq(made, model=net),
        compute_metrics=GenerationMetrics(made, ["wer"], references=["w0"] * EXAMPLES),
        callbacks=[StopAt(stop_at)] if stop_at else [],
    )
    result.seen, result.sizes = [], []
    return result


def main(output_dir: str) -> None:
    """Trains without and with an interruption; writes the batches of this process in both."""
    folder = Path(output_dir)
    whole = trainer(folder / "whole", save_strategy="no")
    whole.train()
    steps = len(whole.seen)
    stopped = trainer(folder / "stopped", stop_at=steps // 2, save_steps=steps // 2)
    stopped.train()
    resumed = trainer(folder / "stopped", save_strategy="no")
    resumed.train(resume_from_checkpoint=True)
    report = {
        "whole": whole.seen,
        "resumed": stopped.seen + resumed.seen,
        "stopped_at": len(stopped.seen),
        "sizes": whole.sizes,
        "evaluation": resumed.evaluate(),
        "predictions": len(resumed.compute_metrics.last_predictions),
    }
    (folder / f"process_{whole.args.process_index}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
