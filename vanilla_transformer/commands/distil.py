"""Makes a small model from a teacher: a model, a program or a server that answers your texts."""

import csv
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanilla_transformer.command_line import PROGRAM, parse_options
from vanilla_transformer.commands.files import check_languages, check_readable
from vanilla_transformer.commands.train import set_environment
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.files.atomic_files import check_lies_elsewhere
from vanilla_transformer.files.file_contents import content_digest
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.files.text_files import read_lines, suffix_of
from vanilla_transformer.names import METRIC_NAMES
from vanilla_transformer.options import REQUIRED, argument, option, same_option
from vanilla_transformer.rules import Rule, check_rules
from vanilla_transformer.run.options import ModelArguments

if TYPE_CHECKING:
    from vanilla_transformer.distil.teachers import Teacher

EXAMPLES = """
vanilla-transformer distil runs/large texts.en --output-dir pt --source-language en \\
    --target-language pt --size 8MB --minutes 60
vanilla-transformer distil "command: espeak-ng -q --ipa" words.txt --output-dir ipa
vanilla-transformer distil http://localhost:8080/v1 po/*.po --teacher-model NAME --output-dir de \\
    --source-language en --target-language de --dry-run
"""
_COMMAND = "command:"


def _read_size(text: str) -> int:
    number = text.upper().removesuffix("MB")
    return int(float(number) * (10**6 if number != text.upper() else 1))


@dataclass(frozen=True)
class Options:
    """The options of the subcommand."""

    teacher: str = argument(
        "saved model or its name on the Hub (several with commas: an ensemble); or "
        f"'{_COMMAND} PROGRAM ARGS', which writes a line for each line; or an address of OpenAI's "
        "form (http://HOST/v1), or of LibreTranslate's (http://HOST/translate)",
        "TEACHER",
    )
    texts: list[str] = argument(
        "files of texts: lines, the first column of a .tsv or .csv, documents", "TEXTS"
    )
    output_dir: str = option("directory of all that is made", REQUIRED, metavar="DIR")
    source_language: str | None = same_option(DataArguments, "source_language")
    target_language: str | None = same_option(DataArguments, "target_language")
    size: int | None = option(
        "the most bytes of the model in 8 bits, such as 8MB (default: by the number of pairs)",
        type=_read_size,
        metavar="SIZE",
        ge=1,
    )
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
    def is_chat(self) -> bool:
        """Whether the teacher is a language model at an address."""
        is_address = "://" in self.teacher and not self.teacher.startswith(_COMMAND)
        return is_address and not self.teacher.endswith("/translate")

    @property
    def files(self) -> list[str]:
        """The files of texts."""
        return [file for name in self.texts for file in sorted(glob(name)) or [name]]

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The languages of source and target."""
        return self.source_language, self.target_language

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
        lambda value, options: bool(value) and not options.is_chat,
        "`{name}` {value!r} is for a language model at an address, such as http://HOST/v1.",
    ),
    Rule(
        ("teacher",),
        lambda _, options: options.is_chat and options.teacher_model is None,
        "{value!r} may have several models: name one with `teacher_model`.",
    ),
    Rule(
        ("teacher",),
        lambda _, options: options.is_chat and not (options.prompt or all(options.languages)),
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


def parse(words: Sequence[str]) -> tuple[Options, Sequence[str]]:
    """Reads the options of the subcommand; the model card shows the words."""
    return parse_options("distil", __doc__, EXAMPLES, Options, words), words


def check(options: tuple[Options, Sequence[str]]) -> None:
    """Checks paths and languages."""
    given, _ = options
    check_readable(*given.files, given.test, given.prompt)
    teachers = given.teacher.split(",")
    check_lies_elsewhere([*teachers, *given.files, given.test], Path(given.output_dir))
    if not given.teacher.startswith(_COMMAND) and "://" not in given.teacher:
        for model in teachers:
            check_model_directory(model)
        check_languages(teachers[0], *given.languages)


def run(options: tuple[Options, Sequence[str]]) -> None:
    """Distils the teacher, and prints the report."""
    set_environment()
    from vanilla_transformer.distil.distillation import Distillation, distil

    given, words = options
    teachers = given.teacher.split(",")
    weights = (path for name in teachers for path in sorted(Path(name).glob("*.safetensors")))
    identity: dict[str, Any] = {"teacher": given.teacher, "languages": given.languages}
    identity |= {"weights": list(map(content_digest, weights))}
    if given.is_chat:
        identity |= {"model": given.teacher_model, "prompt": given.read_prompt()}
    default = ["chrf", "bleu"] if given.target_language else ["mismatch", "cer"]
    plan = Distillation(
        folder=Path(given.output_dir),
        identity=identity,
        languages=given.languages,
        metrics=given.metrics or default,
        training={"minutes": given.minutes, "seed": given.seed},
        test=given.test,
        held_out=given.held_out,
        max_texts=given.max_texts,
        size=given.size,
        price=given.price,
        is_dry=given.dry_run,
        command=(PROGRAM, "distil", *words),
    )
    for line in distil(plan, open_teacher(given), read_texts(given.files)):
        print(line)


def open_teacher(options: Options) -> "Teacher":
    """Opens the teacher that the options name."""
    from vanilla_transformer.distil import teachers

    name, server = options.teacher, (options.timeout, options.parallel)
    if name.startswith(_COMMAND):
        return teachers.CommandTeacher(shlex.split(name[len(_COMMAND) :]), options.timeout)
    if options.is_chat:
        key, prompt = os.environ.get("OPENAI_API_KEY", ""), options.read_prompt()
        return teachers.ChatTeacher(str(options.teacher_model), prompt, name, key, *server)
    if "://" in name:
        key, address = os.environ.get("LIBRETRANSLATE_API_KEY", ""), name.removesuffix("/translate")
        return teachers.LibreTranslateTeacher(*options.languages, address, key, *server)
    return teachers.ModelTeacher(name.split(","), *options.languages)


def read_texts(files: Iterable[str]) -> Iterator[str]:
    """Yields the texts of files, by the ends of their names."""
    from vanilla_transformer.documents.formats import FORMATS, read_document

    for name in files:
        suffix = suffix_of(name)
        if suffix == ".tsv":
            yield from (line.partition("\t")[0] for line in read_lines(name))
        elif suffix == ".csv":
            yield from (row[0] for row in csv.reader(read_lines(name)) if row)
        elif suffix in FORMATS and suffix != ".txt":
            document = read_document(name, Path(name).read_bytes())
            yield from (str(marked.text) for marked in document.texts)
            yield from (pair.source for pair in document.pairs)
        else:
            yield from read_lines(name)
