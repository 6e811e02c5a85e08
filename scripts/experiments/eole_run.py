"""Trains Eole on two text files, and translates with its checkpoints; for `time_to_quality.py`.

Eole (https://github.com/eole-nlp/eole) is the successor of OpenNMT-py. Its programs train and
translate; this module writes their files. Sizes, tokenizer and dropout come from a recipe of this
package. Optimizer and schedule are those of Eole's recipes for translation: Adam, and the schedule
of "Attention Is All You Need".
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from marian_run import make_tokenizer, plain_ffn_dim
from quality_runs import Checkpoints, HeldOut

from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer

CHECKPOINTS = Checkpoints(prefix="step_", last_file="config.json")
WARMUP_STEPS = 1000
_BATCH_TOKENS = 2048  # of the longer side, with padding


@dataclass(frozen=True)
class EoleRun:
    """One training of Eole.

    Attributes:
        program: The command `eole`; it may stand in another virtual environment.
        folder: Directory of its files; checkpoints are in `folder/run`.
        recipe: What `marian_run.recipe_settings` returns.
        threads: CPU threads.
    """

    program: str
    folder: Path
    recipe: dict[str, Any]
    threads: int

    def write_files(
        self, sources: list[str], targets: list[str], *, rate: float, steps: int, save_steps: int
    ) -> None:
        """Writes the texts as pieces, the vocabulary and the configuration.

        White space of every kind becomes single spaces.

        Args:
            sources: Source texts.
            targets: Target texts.
            rate: Highest learning rate.
            steps: Updates of the training.
            save_steps: Updates between checkpoints.

        Raises:
            ValueError: If the recipe has two vocabularies, or pieces that contain white space.
        """
        if not self.recipe["tokenizer"].get("shared", True):
            raise ValueError("Eole is compared on recipes with one vocabulary.")
        self.folder.mkdir(parents=True, exist_ok=True)
        tokenizer = make_tokenizer(self.recipe, sources, targets)
        tokenizer.save_pretrained(self.folder / "tokenizer")
        rows = {"source": sources, "target": targets}
        pieces = {side: [_pieces(tokenizer, text) for text in rows[side]] for side in rows}
        for side, texts in pieces.items():
            self._write_lines(f"train.{side}", [" ".join(text) for text in texts])
        used = {piece for texts in pieces.values() for text in texts for piece in text}
        if divided := [piece for piece in used if piece.split() != [piece]]:
            raise ValueError(
                f"Eole separates pieces by spaces, and the pieces {divided} have some."
            )
        self._write_lines("vocabulary.txt", sorted(used))
        settings = self._settings(len(sources), rate, steps, save_steps)
        (self.folder / "eole.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")

    def _write_lines(self, name: str, lines: Sequence[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        (self.folder / name).write_text(text, encoding="utf-8")

    def _settings(self, num_pairs: int, rate: float, steps: int, save_steps: int) -> dict[str, Any]:
        width = self.recipe["d_model"]
        files = {side: str(self.folder / f"train.{side}") for side in ("source", "target")}
        vocabulary = str(self.folder / "vocabulary.txt")
        corpus = {"path_src": files["source"], "path_tgt": files["target"], "transforms": []}
        return {
            "src_vocab": vocabulary,
            "tgt_vocab": vocabulary,
            "share_vocab": True,
            "save_data": str(self.folder / "run"),
            "overwrite": True,
            "seed": 1,
            "data": {"corpus": corpus},
            "training": {
                "model_path": str(self.folder / "run"),
                "world_size": 0,
                "gpu_ranks": [],
                "num_workers": 0,
                "bucket_size": num_pairs,
                "batch_type": "tokens",
                "batch_size": _BATCH_TOKENS,
                "normalization": "tokens",
                "train_steps": steps,
                "save_checkpoint_steps": save_steps,
                "valid_steps": steps + 1,  # checkpoints are scored afterwards
                "optim": "adam",
                "adam_beta2": 0.998,
                "decay_method": "noam",
                "learning_rate": rate * (width * WARMUP_STEPS) ** 0.5,
                "warmup_steps": WARMUP_STEPS,
                "max_grad_norm": 0,
                "param_init_method": "xavier_uniform",
                "label_smoothing": self.recipe["label_smoothing"],
                "dropout": [self.recipe["dropout"]],
                "attention_dropout": [self.recipe["attention_dropout"]],
            },
            "model": {
                "architecture": "transformer",
                "hidden_size": width,
                "encoder": {"layers": self.recipe["encoder_layers"]},
                "decoder": {"layers": self.recipe["decoder_layers"]},
                "heads": self.recipe["encoder_attention_heads"],
                "transformer_ff": plain_ffn_dim(self.recipe, "encoder"),
                "share_embeddings": True,
                "share_decoder_embeddings": True,
                "embeddings": {
                    "word_vec_size": width,
                    "position_encoding_type": "SinusoidalInterleaved",
                },
            },
        }

    def command(self) -> list[str]:
        """Returns the command of the training."""
        return [self.program, "train", "-config", str(self.folder / "eole.yaml")]

    def score(self, step: int, held_out: HeldOut) -> float:
        """Translates the held-out texts with a checkpoint, and scores the outputs.

        Args:
            step: Step of the checkpoint.
            held_out: The texts.

        Returns:
            The score in percent.

        Raises:
            RuntimeError: If Eole fails.
        """
        tokenizer = VanillaTransformerTokenizer.from_pretrained(self.folder / "tokenizer")
        pieces = [" ".join(_pieces(tokenizer, text)) for text in held_out.sources]
        self._write_lines("held-out.source", pieces)
        written = self.folder / f"held-out.{step}"
        command = [self.program, "predict", "-world_size", "0"]
        command += ["-model_path", str(CHECKPOINTS.path(self.folder / "run", step))]
        command += ["-src", str(self.folder / "held-out.source"), "-output", str(written)]
        command += ["-beam_size", str(held_out.num_beams), "-max_length", str(held_out.max_length)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-1000:]}")
        rows = written.read_text(encoding="utf-8").splitlines()
        return held_out.score([tokenizer.convert_tokens_to_string(row.split()) for row in rows])


def _pieces(tokenizer: VanillaTransformerTokenizer, text: str) -> list[str]:
    """Splits a text; its white space becomes single spaces, since Eole separates pieces by them."""
    return tokenizer.tokenize(" ".join(text.split()))
