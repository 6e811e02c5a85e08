"""The options of a distillation; imports nothing heavy."""

import os
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, Literal

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.files.file_contents import content_digest
from vanilla_transformer.files.model_directory import WEIGHTS
from vanilla_transformer.names import METRIC_NAMES
from vanilla_transformer.options import REQUIRED, argument, option, same_option
from vanilla_transformer.rules import Rule, check_rules
from vanilla_transformer.run.options import ModelArguments

COMMAND = "command:"


@dataclass(frozen=True)
class DistilOptions:
    """The options of the subcommand."""

    teacher: str = argument(
        "saved model or its name on the Hub (several with commas: an ensemble); or "
        f"'{COMMAND} PROGRAM ARGS', which writes a line for each line; or an address of OpenAI's "
        "form (http://HOST/v1), or of LibreTranslate's (http://HOST/translate)",
        "TEACHER",
    )
    texts: list[str] = argument(
        "files of texts: lines, the first column of a .tsv or .csv, documents", "TEXTS"
    )
    output_dir: str = option("directory of all that is made", REQUIRED, metavar="DIR")
    source_language: str | None = same_option(DataArguments, "source_language")
    target_language: str | None = same_option(DataArguments, "target_language")
    size: int | None = same_option(ModelArguments, "size")
    minutes: float | None = same_option(ModelArguments, "minutes")
    test: str | None = option(
        "pairs of a test, by people (default: the model is compared with its teacher)",
        metavar="FILE",
    )
    max_texts: int | None = option("the most texts to learn from (default: all)", ge=1)
    held_out: int = option(
        "texts that are split off for validation, and as many for a test", 500, ge=1
    )
    metrics: list[str] = option(
        "scores; the first decides (default: chrf and bleu with a target language, otherwise "
        "mismatch and cer)",
        [],
        metavar="METRIC",
        choices=METRIC_NAMES,
    )
    teacher_model: str | None = option("name of the language model at the address")
    prompt: str | None = option(
        "file of its prompt, with {text} for the text (default: asks for a translation)",
        metavar="FILE",
    )
    price: list[float] = option(
        "cost of a million tokens that it reads, and that it writes", [], nargs=2, metavar="COST"
    )
    timeout: float = option("seconds for a request, or for 512 lines of a command", 120, gt=0)
    parallel: int = option("requests at the same time", 4, ge=1)
    dry_run: bool = option("ask 20 texts, and say what all would take and cost", False)
    seed: int = option("seed of the training", 42)

    def __post_init__(self) -> None:
        check_rules(RULES, self)

    @property
    def kind(self) -> Literal["command", "chat", "translate", "model"]:
        """The kind of the teacher: a program, a language model, a translator, or saved models."""
        if self.teacher.startswith(COMMAND):
            return "command"
        if "://" in self.teacher:
            return "translate" if self.teacher.endswith("/translate") else "chat"
        return "model"

    @property
    def folder(self) -> Path:
        """The directory of all that is made."""
        return Path(self.output_dir)

    @property
    def student(self) -> Path:
        """The directory of the model."""
        return self.folder / "model"

    @property
    def models(self) -> list[str]:
        """The saved models that are the teacher. Empty: it is a program or a server."""
        return self.teacher.split(",") if self.kind == "model" else []

    @property
    def files(self) -> list[str]:
        """The files of texts: those that exist by their names, and those that fit a pattern."""
        found = {name: [] if os.path.exists(name) else sorted(glob(name)) for name in self.texts}
        return [file for name, files in found.items() for file in files or [name]]

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The languages of source and target."""
        return self.source_language, self.target_language

    @property
    def chosen_metrics(self) -> list[str]:
        """The metrics that are given, or the default ones of the task."""
        return self.metrics or (["chrf", "bleu"] if self.target_language else ["mismatch", "cer"])

    def identity(self) -> dict[str, Any]:
        """Returns what identifies the teacher; answers of another one lie in another directory."""
        weights = (path for name in self.models for path in sorted(Path(name).glob(WEIGHTS[0])))
        identity: dict[str, Any] = {"teacher": self.teacher, "languages": self.languages}
        identity |= {"weights": list(map(content_digest, weights))}
        if self.kind == "chat":
            identity |= {"model": self.teacher_model, "prompt": self.read_prompt()}
        return identity

    def read_prompt(self) -> str:
        """Returns the prompt of a language model."""
        if self.prompt is not None:
            return Path(self.prompt).read_text(encoding="utf-8")
        from vanilla_transformer.language_tags import language_name

        source, target = (language_name(code or "") for code in self.languages)
        return f"Translate from {source} to {target}. Answer with the translation only.\n\n{{text}}"


RULES = (
    Rule(
        ("teacher_model", "prompt", "price"),
        lambda value, options: bool(value) and options.kind != "chat",
        "`{name}` {value!r} is for a language model at an address, such as http://HOST/v1.",
    ),
    Rule(
        ("teacher",),
        lambda _, options: options.kind == "chat" and options.teacher_model is None,
        "{value!r} may have several models: name one with `teacher_model`.",
    ),
    Rule(
        ("teacher",),
        lambda _, options: (
            options.kind == "chat" and not (options.prompt or all(options.languages))
        ),
        "{value!r} needs `source_language` and `target_language`, or a `prompt`.",
    ),
    Rule(
        ("teacher",),
        lambda value, _: "@" in value.partition("://")[2].partition("/")[0],
        "The teacher's address holds a key, which the card would show: put it into the "
        "environment as OPENAI_API_KEY or LIBRETRANSLATE_API_KEY.",
    ),
)
"""The rules of the options."""
