"""Makes a small model from a teacher: a model, a program or a server that answers your texts."""

import csv
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vanilla_transformer.command_line import PROGRAM, parse_options
from vanilla_transformer.commands.files import check_languages, check_readable
from vanilla_transformer.commands.train import set_environment
from vanilla_transformer.distil.options import COMMAND, Options
from vanilla_transformer.files.atomic_files import check_lies_elsewhere
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.files.text_files import read_lines, suffix_of

if TYPE_CHECKING:
    from vanilla_transformer.distil.teachers import Teacher

EXAMPLES = """
vanilla-transformer distil runs/large texts.en --output-dir pt --source-language en \\
    --target-language pt --size 8MB --minutes 60
vanilla-transformer distil "command: espeak-ng -q --ipa" words.txt --output-dir ipa
vanilla-transformer distil http://localhost:8080/v1 po/*.po --teacher-model NAME --output-dir de \\
    --source-language en --target-language de --dry-run
"""


def parse(words: Sequence[str]) -> tuple[Options, Sequence[str]]:
    """Reads the options of the subcommand; the model card shows the words."""
    return parse_options("distil", __doc__, EXAMPLES, Options, words), words


def check(options: tuple[Options, Sequence[str]]) -> None:
    """Checks paths and languages."""
    given, _ = options
    check_readable(*given.files, given.test, given.prompt)
    check_lies_elsewhere([*given.models, *given.files, given.test], given.folder)
    for model in given.models:
        check_model_directory(model)
        check_languages(model, *given.languages)


def run(options: tuple[Options, Sequence[str]]) -> None:
    """Distils the teacher, and prints the report."""
    set_environment()
    from vanilla_transformer.distil.distillation import distil

    given, words = options
    command = (PROGRAM, "distil", *words)
    for line in distil(given, open_teacher(given), read_texts(given.files), command):
        print(line)


def open_teacher(options: Options) -> "Teacher":
    """Opens the teacher that the options name."""
    from vanilla_transformer.distil import teachers

    name, server = options.teacher, (options.timeout, options.parallel)
    if options.kind == "command":
        return teachers.CommandTeacher(shlex.split(name[len(COMMAND) :]), options.timeout)
    if options.kind == "chat":
        key, prompt = os.environ.get("OPENAI_API_KEY", ""), options.read_prompt()
        return teachers.ChatTeacher(str(options.teacher_model), prompt, name, key, *server)
    if options.kind == "translate":
        key, address = os.environ.get("LIBRETRANSLATE_API_KEY", ""), name.removesuffix("/translate")
        return teachers.LibreTranslateTeacher(*options.languages, address, key, *server)
    return teachers.ModelTeacher(options.models, *options.languages)


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
            yield from (str(marked.text) for marked in document.texts)
            yield from (pair.source for pair in document.pairs)
        else:
            yield from read_lines(name)
