"""Makes a small model from a teacher: a model, a program or a server that answers your texts."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from vanilla_transformer.command_line import PROGRAM, parse_options
from vanilla_transformer.commands.files import check_languages
from vanilla_transformer.commands.train import set_environment
from vanilla_transformer.distil.options import DistilOptions
from vanilla_transformer.files.atomic_files import check_lies_elsewhere
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.files.text_files import check_files, read_lines, suffix_of

EXAMPLES = """
vanilla-transformer distil runs/large texts.en --output-dir pt --source-language en \\
    --target-language pt --size 8MB --minutes 60
vanilla-transformer distil "command: espeak-ng -q --ipa" words.txt --output-dir ipa
vanilla-transformer distil http://localhost:8080/v1 po/*.po --teacher-model NAME --output-dir de \\
    --source-language en --target-language de --dry-run
"""


def parse(words: Sequence[str]) -> tuple[DistilOptions, Sequence[str]]:
    """Reads the options of the subcommand; the model card shows the words."""
    return parse_options("distil", __doc__, EXAMPLES, DistilOptions, words), words


def check(options: tuple[DistilOptions, Sequence[str]]) -> None:
    """Checks paths and languages."""
    given, _ = options
    check_files(*given.files, given.test, given.prompt)
    check_lies_elsewhere([*given.models, *given.files, given.test], given.folder)
    for model in given.models:
        check_model_directory(model)
        check_languages(model, *given.languages)


def run(options: tuple[DistilOptions, Sequence[str]]) -> None:
    """Distils the teacher, and prints the report."""
    set_environment()
    from vanilla_transformer.distil.distillation import distil, try_out
    from vanilla_transformer.distil.report import describe_report
    from vanilla_transformer.distil.teachers import open_teacher

    given, words = options
    teacher, texts = open_teacher(given), read_texts(given.files)
    if given.dry_run:
        lines = try_out(given, teacher, texts)
    else:
        report = distil(given, teacher, texts, (PROGRAM, "distil", *words))
        lines = chain(describe_report(report), [f"The model to use: {given.student}"])
    for line in lines:
        print(line)


def read_texts(files: Iterable[str]) -> Iterator[str]:
    """Yields the texts of files, by the ends of their names."""
    from vanilla_transformer.documents.formats import FORMATS, read_document

    for name in files:
        suffix = suffix_of(name)
        if suffix == ".tsv":
            yield from (line.partition("\t")[0] for line in read_lines(name))
        elif suffix == ".csv":
            lines = (line + "\n" for line in read_lines(name))  # a cell may have several
            yield from (row[0] for row in csv.reader(lines) if row)
        elif suffix in FORMATS and suffix != ".txt":
            document = read_document(name, Path(name).read_bytes())
            yield from (str(text.marked.plain) for text in document.texts)
            yield from (pair.source for pair in document.pairs)
        else:
            yield from read_lines(name)
