"""The part that `translate` and the workers of a corpus share: options, translator, lines."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import tee
from math import ceil
from typing import TYPE_CHECKING, Any, TextIO

from vanilla_transformer.command_line import told_when_slow, usage_errors
from vanilla_transformer.commands.options import ModelOptions, OutputFile
from vanilla_transformer.files.file_contents import without_infinities
from vanilla_transformer.files.text_files import as_cell, on_one_line
from vanilla_transformer.inference.options import OutputOptions, TranslateOptions
from vanilla_transformer.options import TypedEngineOptions, argument, option
from vanilla_transformer.rules import refuse
from vanilla_transformer.text.word_alignment import format_links

if TYPE_CHECKING:
    from vanilla_transformer.inference.results import Translation
    from vanilla_transformer.inference.translator import Translator
    from vanilla_transformer.text.memory import Memory


@dataclass(frozen=True, kw_only=True)
class Files(OutputFile):
    """The files that are read and written."""

    _argument_group_name = "files"

    input: str | None = option("source texts, one per line; UTF-8, plain or .gz", metavar="FILE")
    document: str | None = option(
        "a document, such as report.docx or page.html: its texts are translated, and all else "
        "stays; --output is report.LANGUAGE.docx by default",
        metavar="FILE",
    )
    front_matter: list[str] | None = option(
        "keys of the front matter of Markdown whose values are translated, such as title",
        metavar="KEY",
    )
    previous: str | None = option(
        "a former version of --document: with --existing, what did not change since then keeps its "
        "translation (docs/better.md)",
        metavar="FILE",
    )
    existing: str | None = option("the translation of --previous", metavar="FILE")
    json: bool = option(
        "write a JSON object per line: source, outputs, scores, tokens, token scores", False
    )
    tsv: bool = option(
        "write SOURCE, a tab and OUTPUT, which is a corpus for training (docs/corpora.md)", False
    )
    review: int | None = option(
        "list so many percent of the outputs on standard error, the worst first, with their places "
        "and their quality: read these first (docs/better.md)",
        ge=1,
        le=100,
    )
    quality: bool = option(
        "add the quality of the outputs to --tsv, as a third column (docs/better.md)", False
    )
    fuzzy_below: int | None = option(
        "mark outputs of --document with a quality below this number: as fuzzy in .po, as in need "
        "of review in .xlf (docs/better.md)",
        ge=1,
        le=100,
    )
    alignment: str | None = option(
        "add which source word (or token) each target word comes from, in Pharaoh's format: "
        "OUTPUT ||| 0-0 1-2; ||| in an output becomes &#124;&#124;&#124;",
        choices=("words", "tokens"),
    )


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A corpus that is translated in parts."""

    _argument_group_name = "a corpus, shard by shard (needs the extra corpus)"

    files: list[str] = option(
        "texts as in --input; --output is then a directory, which a later call completes",
        [],
        flag="--corpus",
        metavar="FILE",
    )
    num_proc: int = option("processes on this machine, with one thread each", 1, ge=1)
    scheduler: str | None = option(
        "address, or scheduler file, of a Dask cluster whose workers translate instead",
        metavar="ADDRESS",
    )
    shard_lines: int = option(
        "lines of a shard, which takes some minutes of a processor", 16_384, ge=1
    )


@dataclass(frozen=True, kw_only=True)
class Request(TranslateOptions):
    """The options of a request, and the files of former translations."""

    memory: list[str] = option(
        "former translations, whose texts are not translated again: .tsv of source and target, "
        ".tmx, .po, .xliff (docs/better.md)",
        [],
        type=os.path.abspath,
        metavar="FILE",
    )
    no_memory: bool = option(
        "do not take the translations that a document has itself for its other texts", False
    )


@dataclass(frozen=True, kw_only=True)
class Computation(TypedEngineOptions):
    """The computation of the outputs."""

    ensemble_with: list[str] = option(
        "further models, with the same vocabulary; their probabilities are averaged",
        [],
        metavar="MODEL",
    )
    seed: int = option("seed of the random numbers for sampling", 0)


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """The options of the subcommand."""

    lines: list[str] = argument(
        "source texts; without them, lines come from --input or from standard input",
        "LINE",
        nargs="*",
        default=[],
    )
    files: Files
    corpus: Corpus
    request: Request = field(
        metadata={"without": ("in_sentences", "batch_tokens", *OutputOptions.__dataclass_fields__)}
    )
    computation: Computation

    def __post_init__(self) -> None:
        files, corpus, no_memory = self.files, self.corpus.files, self.request.no_memory
        refuse(
            (
                sum(map(bool, (self.lines, files.input, corpus, files.document))) > 1,
                "give the lines as arguments, in --input, --corpus or --document: one of these",
            ),
            (corpus and not files.output, "--corpus needs --output, the name of a directory"),
            (
                files.tsv and (files.json or files.alignment),
                "--tsv, --json and --alignment write lines of different forms: give one",
            ),
            (
                files.document
                and (files.tsv or files.json or files.alignment or self.request.n_best),
                "--document writes a document: --tsv, --json, --alignment and --n-best are for "
                "lines",
            ),
            (
                not files.document
                and any((files.front_matter, files.previous, files.fuzzy_below, no_memory)),
                "--front-matter, --previous, --fuzzy-below and --no-memory need a --document",
            ),
            (
                bool(files.previous) != bool(files.existing),
                "--previous and --existing are two files: give both",
            ),
            (
                files.review and (corpus or self.request.n_best or self.computation.ensemble_with),
                "--review reads one output of each text, by one model: leave out --corpus, "
                "--n-best and --ensemble-with",
            ),
            (files.quality and not files.tsv, "--quality is a column of --tsv"),
        )

    @property
    def asked(self) -> Request:
        """The request, with the details that the files show."""
        files = self.files
        return replace(
            self.request,
            scores=bool(files.json or files.quality or files.review or files.fuzzy_below),
            tokens=files.json,
            alignment=files.alignment == "tokens",
            word_alignment=files.alignment == "words",
            batch_tokens=self.computation.batch_tokens,
        )


@lru_cache(maxsize=1)  # the shards of a corpus share it
def read_memory(paths: tuple[str, ...], source: str | None, target: str | None) -> "Memory":
    """Reads former translations between two languages."""
    from vanilla_transformer.documents import memory_files

    return memory_files.read_memory(paths, source, target)


def load_memories(options: Options, translator: "Translator") -> "list[Memory]":
    """Reads the former translations in the languages of the request."""
    (direction,), paths = translator.directions(1, options.request), tuple(options.request.memory)
    return [read_memory(paths, direction.source, direction.target)] if paths else []


def load_translator(options: Options) -> "Translator":
    """Loads the model, and checks the options of the request."""
    from vanilla_transformer.inference.translator import Translator

    computation, files = options.computation, options.files
    with told_when_slow("Loading the model ..."):
        translator = Translator.from_pretrained(
            [options.model, *computation.ensemble_with],
            computation.engine,
            computation.device,
            computation.compute_type,
        )
    with usage_errors():
        translator.directions(1, options.asked)
    shows_quality = files.review or files.quality or files.fuzzy_below
    if shows_quality and translator.joiner.calibration is None:
        raise ValueError(
            "--review, --quality and --fuzzy-below need the quality of outputs, and "
            f"{options.model!r} has no calibration of it: `vanilla-transformer evaluate "
            "--calibrate` makes one."
        )
    return translator


def print_outputs(
    translator: "Translator",
    options: Options,
    lines: Iterable[str],
    stream: TextIO,
    progress: bool = False,
    file: str | None = None,
    first: int = 0,
) -> None:
    """Translates lines, and prints the outputs as the options say.

    Args:
        file: Where the lines are from.
        first: The number of the first of them there, from 0.
    """
    files, before = options.files, "" if file is None else f"{file}, "

    def name_text(number: int) -> str:
        return f"{before}line {first + number + 1}"

    # A list or a file can be read a second time beside the outputs; a stream cannot.
    texts, sources = (lines, lines) if isinstance(lines, Sized) else tee(lines)
    memories = load_memories(options, translator)
    rows = translator.stream(texts, options.asked, memories, progress, name_text)
    reviewed = []
    for number, (outputs, source) in enumerate(zip(rows, sources, strict=True)):
        if files.review:
            reviewed.append((name_text(number), source, outputs[0]))
        for line in _lines_of(source, outputs, files):
            print(line, file=stream)
    if files.review:
        print_review(reviewed, files.review)


def _lines_of(source: str, outputs: "Sequence[Translation]", files: Files) -> Iterator[str]:
    """Yields one line of JSON for a text, or a line for each of its outputs."""
    if files.json:
        content = {"source": source, "outputs": list(map(_output_fields, outputs))}
        yield json.dumps(without_infinities(content), ensure_ascii=False)
        return
    for output in outputs:
        cells = [source, _output_line(output)]
        if files.quality:  # a blank text has none
            cells.append("" if output.quality is None else f"{output.quality:.0f}")
        # Some models can generate line breaks.
        yield "\t".join(map(as_cell, cells)) if files.tsv else on_one_line(cells[1])


def print_review(rows: Iterable[tuple[str, str, "Translation"]], percent: int) -> None:
    """Prints the outputs of lowest quality on standard error, the worst first.

    Args:
        rows: The place of each text, the text, and its output.
    """
    known = [
        (output.quality, place, source, output.text)
        for place, source, output in rows
        if output.quality is not None  # a blank text has none
    ]
    for quality, place, source, text in sorted(known)[: ceil(len(known) * percent / 100)]:
        print(f"{place}: quality {quality:.0f}\n  {source}\n  {text}", file=sys.stderr)


def _output_line(output: "Translation") -> str:
    """Returns a text, followed by its links if there are any."""
    links = output.alignment if output.word_alignment is None else output.word_alignment
    if links is None:
        return output.text
    text = output.text.replace("|||", "&#124;" * 3)  # as Moses writes it
    return f"{text} ||| {format_links(links)}"


def _output_fields(output: "Translation") -> dict[str, Any]:
    shown = replace(output, features=None)
    fields = {name: value for name, value in asdict(shown).items() if value is not None}
    return {**fields, "token_scores": [round(score, 4) for score in fields["token_scores"]]}
