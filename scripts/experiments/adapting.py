r"""Runs the demonstrations of docs/benchmarks.md on real data, and prints a table for each.

    python scripts/experiments/adapting.py localization --model runs/en-de --own data/localization
    python scripts/experiments/adapting.py back-translation
    python scripts/experiments/adapting.py distillation --model runs/en-de

The data are Multi30k (`--data`: train, val, test_2016_flickr as FILE.LANGUAGE.gz), and for the
first demonstration pairs of texts of programs (`--own`: train, valid, test as FILE.en-de.tsv.gz).
Each model is made by a command of the package, which is printed. Finished models and scores stay in
the output directory, so that a second call goes on.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import mean

from vanilla_transformer.files.text_files import read_lines
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.run.machine import Machine
from vanilla_transformer.training.metrics import score_texts

RECIPE = Path(__file__).resolve().parents[1] / "recipes" / "multi30k-quick.yaml"
TEST = "test_2016_flickr"
SMALL = ["--encoder_layers=2", "--decoder_layers=2", "--vocab_size=3000", "--dropout=0.3"]
BEST_STEP = [
    *("--eval_strategy=steps", "--eval_steps=250", "--save_strategy=steps", "--save_steps=250"),
    *("--load_best_model_at_end=True", "--metric_for_best_model=bleu", "--greater_is_better=True"),
]
SIZES = {10_000: (4, 0.75, 10), 50_000: (3, 0.6, 4), 500_000: (1, 0.25, 1)}
"""Numbers of pairs of the first demonstration, with the most epochs of an adaptation, its share of
captions, and the epochs of a training from scratch."""
RATE = ("--optim", "muon", "--learning-rate", 0.01)
"""The best of four rates for 10,000 pairs."""
TOKEN_STAGES = {
    "tokens": ["--num_train_epochs=4"],
    "tokens-longer": [
        *("--num_train_epochs=3", "--muon_learning_rate=0.01", "--learning_rate=0.0015"),
        *("--warmup_steps=50", "--ema_decay=0.998"),
    ],
}
"""Two trainings of a student on the predictions of its teacher; the second goes on at half the
rate."""


def lines_of(path: Path | str) -> list[str]:
    """Returns the lines of a file."""
    return list(read_lines(str(path)))


class Study:
    """The files, models and scores of one demonstration."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder: Path = Path(options.output_dir) / options.demonstration
        self.folder.mkdir(parents=True, exist_ok=True)

    def text(self, name: str, language: str) -> str:
        """Returns the path of a file of Multi30k."""
        return str(Path(self.options.data) / f"{name}.{language}.gz")

    def run(self, name: str, *words: object) -> Path:
        """Runs a command of the package once; its output is `name` in the directory."""
        output, done = self.folder / name, self.folder / f"{name}.done"
        command = [str(output if word is OUTPUT else word) for word in words]
        if done.exists():
            return output
        print("vanilla-transformer", shlex.join(command), flush=True)
        shutil.rmtree(output, ignore_errors=True)
        start = time.monotonic()
        with (self.folder / f"{name}.log").open("w") as log:
            subprocess.run(
                [sys.executable, "-m", "vanilla_transformer", *command],
                stdout=log,
                stderr=log,
                check=True,
                env={**os.environ, "OMP_NUM_THREADS": str(self.options.threads)},
            )
        done.write_text(f"{time.monotonic() - start:.0f} s\n")
        return output

    def train(self, name: str, corpora: Sequence[Mapping[str, object]], *words: object) -> Path:
        """Trains a model with the recipe, at the rate of the figures in `docs/benchmarks.md`."""
        is_bf16 = Machine.here(use_cpu=True).has_bfloat16
        return self.run(
            name,
            *("train", RECIPE, f"--bf16={is_bf16}", "--output_dir", OUTPUT),
            "--muon_learning_rate=0.02",
            *("--corpora", *(json.dumps(corpus) for corpus in corpora)),
            *words,
        )

    def validation(self, source: str, target: str) -> tuple[str, ...]:
        """Returns the options of the validation captions of a direction."""
        files = (self.text("val", source), self.text("val", target))
        return ("--validation_source", files[0], "--validation_target", files[1])

    def score(
        self, model: Path | str, sources: list[str], references: list[str], of: str
    ) -> dict[str, float]:
        """Scores the outputs of a model on texts, with 5 beams; `of` names model and texts."""
        record = self.folder / "scores.json"
        known: dict[str, dict[str, float]] = (
            json.loads(record.read_text()) if record.exists() else {}
        )
        if of not in known:
            translator = Translator.from_pretrained(str(model))
            outputs = translator.translate(sources, num_beams=5)
            known[of] = {
                metric: score_texts(metric, outputs, [[text] for text in references])[metric]
                for metric in ("bleu", "chrf")
            }
            record.write_text(json.dumps(known, indent=1))
            print(of, known[of], flush=True)
        return known[of]

    def score_captions(
        self, model: Path | str, of: str, target: str = "de", tag: str = ""
    ) -> dict[str, float]:
        """Scores the outputs of a model for the English test captions."""
        sources = [tag + line for line in lines_of(self.text(TEST, "en"))]
        return self.score(model, sources, lines_of(self.text(TEST, target)), f"{of}: {target}")


OUTPUT = object()
"""Stands for the output of a command in its words."""


def localization(study: Study) -> None:
    """Adapts the model to texts of programs, with and without general captions in the mix."""
    own, model = Path(study.options.own), study.options.model
    pairs = {
        name: [line.split("\t")[:2] for line in lines_of(own / f"{name}.en-de.tsv.gz")]
        for name in ("valid", "test")
    }
    files = {split: study.folder / f"{split}.tsv" for split in ("validation", "test")}
    for name, path in zip(pairs, files.values(), strict=True):
        path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs[name][:500]))
    sources, references = (list(side) for side in zip(*pairs["test"], strict=True))
    rows = [("the model", [study_scores(study, model, "before", sources, references)])]
    for size in study.options.pairs:
        epochs, share, epochs_from_nothing = SIZES[size]
        texts = study.folder / f"{size}.tsv"
        texts.write_text("".join(f"{line}\n" for line in first_lines(own, size)))
        own_pairs: dict[str, object] = {
            "train": str(texts),
            "columns": [1, 2],
            **{split: str(path) for split, path in files.items()},
        }
        captions: dict[str, object] = {
            split: [study.text(name, side) for side in ("en", "de")]
            for split, name in (("train", "train"), ("validation", "val"), ("test", TEST))
        }
        entries: dict[str, list[dict[str, object]]] = {
            "alone": [own_pairs],
            "mixed": [
                {**own_pairs, "weight": 1 - share},
                {**captions, "name": "general", "weight": share},
            ],
            "texts": [own_pairs],
        }
        scores: dict[str, list[tuple[float, ...]]] = {}
        for seed in study.options.seeds:
            for arm in study.options.arms:
                name = f"{arm}-{size}-{seed}"
                if arm == "nothing":
                    adapted = study.train(
                        name,
                        [own_pairs],
                        f"--num_train_epochs={epochs_from_nothing}",
                        f"--seed={seed}",
                    )
                else:
                    recipe = study.folder / f"{arm}-{size}.yaml"
                    recipe.write_text(json.dumps({"corpora": entries[arm]}))
                    adapted = study.run(
                        name,
                        *("adapt", model, recipe, "--output-dir", OUTPUT),
                        *("--max-tokens", 4096, "--epochs", epochs, "--seed", seed),
                        *(("--general-texts", study.text("train", "en")) if arm == "texts" else ()),
                        *RATE,
                    )
                    adapted /= "model"
                scores.setdefault(arm, []).append(
                    study_scores(study, adapted, name, sources, references)
                )
        titles = {
            "mixed": f"adapted to {size:,} pairs",
            "texts": "the same, with its own outputs for captions",
            "alone": "the same, without captions",
            "nothing": f"trained from scratch on the {size:,} pairs",
        }
        rows += [(titles[arm], values) for arm, values in scores.items()]
    print_table(("model", "BLEU on own texts", "chrF on own texts", "Multi30k BLEU"), rows)


def study_scores(
    study: Study, model: Path | str, name: str, sources: list[str], references: list[str]
) -> tuple[float, ...]:
    """Returns BLEU and chrF on the own test set, and BLEU on the test captions."""
    own_scores = study.score(model, sources, references, f"{name}: own")
    return own_scores["bleu"], own_scores["chrf"], study.score_captions(model, name)["bleu"]


def first_lines(own: Path, count: int) -> list[str]:
    """Returns the first training pairs as SOURCE TAB TARGET."""
    lines = islice(read_lines(str(own / "train.en-de.tsv.gz")), count)
    return ["\t".join(line.split("\t")[:2]) for line in lines]


def back_translation(study: Study) -> None:
    """Trains on 3,000 pairs, with and without translations of 26,000 German lines."""
    texts = {language: lines_of(study.text("train", language)) for language in ("en", "de")}
    few = {language: str(study.folder / f"few.{language}") for language in texts}
    for language, path in few.items():
        Path(path).write_text("".join(f"{line}\n" for line in texts[language][:3000]))
    german = study.folder / "mono.de"
    german.write_text("".join(f"{line}\n" for line in texts["de"][3000:]))
    scores: dict[str, list[tuple[float, ...]]] = {}
    for seed in study.options.seeds:
        options = (*SMALL, *BEST_STEP, f"--seed={seed}")
        pairs = {"train": [few["en"], few["de"]]}
        alone = study.train(
            f"alone-{seed}", [pairs], *options, *study.validation("en", "de"), "--max_steps=750"
        )
        back = study.train(
            f"backward-{seed}",
            [{"train": [few["de"], few["en"]]}],
            *(*options, *study.validation("de", "en"), "--max_steps=750"),
        )
        translated = study.run(
            f"back-{seed}.tsv",
            *("translate", back, "--input", german, "--output", OUTPUT, "--tsv"),
        )
        both = study.train(
            f"both-{seed}",
            [
                {**pairs, "name": "pairs", "weight": 1},
                {"train": str(translated), "columns": [2, 1], "tag": "<bt>", "weight": 3},
            ],
            *(*options, *study.validation("en", "de"), "--max_steps=2000"),
        )
        for title, model in (
            ("3,000 pairs", alone),
            ("3,000 pairs and 26,000 German lines, translated back", both),
        ):
            bleu_and_chrf = study.score_captions(model, model.name)
            scores.setdefault(title, []).append((bleu_and_chrf["bleu"], bleu_and_chrf["chrf"]))
    print_table(("trained on", "BLEU", "chrF"), list(scores.items()))


def distillation(study: Study) -> None:
    """Trains models with one decoder layer on the captions and on what a teacher makes of them."""
    teacher = study.options.model
    outputs = study.run(
        "outputs.tsv",
        *("translate", teacher, "--input", study.text("train", "en"), "--output", OUTPUT),
        *("--tsv", "--num-beams", 5),
    )
    data: dict[str, dict[str, object]] = {
        "the captions": {"train": [study.text("train", side) for side in ("en", "de")]},
        "the outputs of the teacher": {"train": str(outputs)},
    }
    rows = [("the teacher", [caption_scores(study, teacher, "teacher")])]
    for title, corpus in data.items():
        scores = []
        for seed in study.options.seeds:
            name = f"{title.split()[1]}-{seed}"
            student = study.train(
                name,
                [corpus],
                *("--decoder_layers=1", f"--num_train_epochs={study.options.epochs}"),
                f"--seed={seed}",
                *study.validation("en", "de"),
            )
            scores.append(caption_scores(study, student, name))
        rows.append((f"one decoder layer, {title}", scores))
    both = [{**corpus, "name": title.split()[1]} for title, corpus in data.items()]
    scores = []
    for seed in study.options.seeds:
        start: tuple[object, ...] = ("--tokenizer_name_or_path", teacher)
        for name, words in TOKEN_STAGES.items():
            student = study.train(
                f"{name}-{seed}",
                both,
                *("--teacher", teacher, "--teacher_weight=0.8", "--decoder_layers=1"),
                *("--decoder_ffn_dim=688", f"--seed={seed}", *start, *words),
                *study.validation("en", "de"),
            )
            start = ("--model_name_or_path", student)
        scores.append(caption_scores(study, student, student.name))
    rows.append(("one wider decoder layer, both, and the teacher's predictions", scores))
    sources = lines_of(study.text(TEST, "en"))
    speeds = measure_speeds({"teacher": teacher, "student": str(student)}, sources)
    print_table(("model", "BLEU", "chrF"), rows)
    print(
        f"CTranslate2, int8, 5 beams: {speeds['student'] / speeds['teacher']:.2f} times the speed"
    )


def caption_scores(study: Study, model: Path | str, name: str) -> tuple[float, float]:
    """Returns BLEU and chrF on the test captions."""
    scores = study.score_captions(model, name)
    return scores["bleu"], scores["chrf"]


def measure_speeds(models: dict[str, str], texts: list[str], turns: int = 5) -> dict[str, float]:
    """Returns the texts a second of each model in CTranslate2 with int8: the best of some turns."""
    translators = {
        name: Translator.from_pretrained(path, "ctranslate2", compute_type="int8")
        for name, path in models.items()
    }
    best = dict.fromkeys(models, 0.0)
    for _ in range(turns):
        for name, translator in translators.items():
            start = time.perf_counter()
            translator.translate(texts, num_beams=5)
            best[name] = max(best[name], len(texts) / (time.perf_counter() - start))
    return best


def print_table(
    heads: Sequence[str], rows: Sequence[tuple[str, Sequence[tuple[float, ...]]]]
) -> None:
    """Prints means over seeds, and each seed's value if there are several, as Markdown."""
    print("|", " | ".join(heads), "|")
    print("|" + "---|" * len(heads))
    for title, seeds in rows:
        cells = []
        for values in zip(*seeds, strict=True):
            each = ", ".join(f"{value:.1f}" for value in values)
            cells.append(f"{mean(values):.1f} ({each})" if len(values) > 1 else each)
        print("|", " | ".join([title, *cells]), "|")


DEMONSTRATIONS: dict[str, Callable[[Study], None]] = {
    "localization": localization,
    "back-translation": back_translation,
    "distillation": distillation,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one demonstration."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("demonstration", choices=DEMONSTRATIONS)
    add("--model", default="runs/en-de", metavar="DIR", help="English-German model of Multi30k")
    add("--data", default="data/multi30k", metavar="DIR", help="the captions")
    add("--own", default="data/localization", metavar="DIR", help="the texts of programs")
    add("--output-dir", default="runs/adapting", metavar="DIR", help="models and scores")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], help="seeds of the trainings")
    add("--pairs", type=int, nargs="+", choices=SIZES, default=list(SIZES), help="localization")
    add(
        "--arms",
        nargs="+",
        default=["mixed", "texts", "alone", "nothing"],
        help="localization: trainings",
    )
    add("--epochs", type=int, default=8, help="distillation: epochs of a student")
    add("--threads", type=int, default=1, help="CPU threads of a training")
    options = parser.parse_args(argv)
    DEMONSTRATIONS[options.demonstration](Study(options))


if __name__ == "__main__":
    main()
