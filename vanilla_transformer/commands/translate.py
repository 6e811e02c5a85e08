"""`vanilla-transformer translate`: lines, files and pipes through the fastest engine."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence, Sized
from dataclasses import asdict
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from vanilla_transformer.commands.files import (
    FileLines,
    check_output,
    file_identity,
    is_made_already,
    open_output,
    print_line,
    source_lines,
    write_in_chunks,
)
from vanilla_transformer.commands.options import (
    CommandParser,
    add_compute_type_option,
    add_engine_options,
    add_language_options,
    add_model_argument,
    add_output_options,
    add_pattern_option,
    add_resume_option,
    add_search_options,
    check_usage,
    languages_of,
    positive_integer,
    search_options,
    usage_errors,
)
from vanilla_transformer.data.atomic_files import explained_full_disk, replaced_file
from vanilla_transformer.data.text_files import existing_file
from vanilla_transformer.data.word_alignment import format_links

if TYPE_CHECKING:
    from vanilla_transformer.inference.results import Translation
    from vanilla_transformer.inference.translator import Translator

SUMMARY = "Translates lines, files and pipes with the fastest engine that is installed."
EXAMPLES = """
vanilla-transformer translate runs/multi30k "A dog runs through the snow."
cat big.en | vanilla-transformer translate runs/multi30k --num-beams 5 > big.de
vanilla-transformer translate runs/multi30k --input big.en --output big.de --resume
vanilla-transformer translate runs/multi30k --document report.docx
vanilla-transformer translate runs/multi30k --alignment words "A dog runs through the snow."
vanilla-transformer translate runs/multi30k --corpus a.en b.en.gz --output out --tsv --num-proc 8
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("translate", SUMMARY, EXAMPLES, intermixed=True)
    add_model_argument(parser)
    parser.add_argument(
        "lines",
        metavar="LINE",
        nargs="*",
        default=[],
        help="source texts; without them, lines come from --input or from standard input",
    )
    files = parser.add_argument_group("files")
    files.add_argument(
        "--input", metavar="FILE", help="source texts, one per line; UTF-8, plain or .gz"
    )
    files.add_argument(
        "--document",
        metavar="FILE",
        help="a document, such as report.docx or page.html: its texts are translated, and all else "
        "stays; --output is report.LANGUAGE.docx by default",
    )
    add_output_options(files)
    add_resume_option(files)
    files.add_argument(
        "--json",
        action="store_true",
        help="write a JSON object per line: source, outputs, scores, tokens, token scores",
    )
    files.add_argument(
        "--tsv",
        action="store_true",
        help="write SOURCE, a tab and OUTPUT, which is a corpus for training (docs/corpora.md)",
    )
    files.add_argument(
        "--alignment",
        choices=("words", "tokens"),
        help="add which source word (or token) each target word comes from, in Pharaoh's format: "
        "OUTPUT ||| 0-0 1-2; ||| in an output becomes &#124;&#124;&#124;",
    )
    add_language_options(parser.add_argument_group("languages"))
    corpus = parser.add_argument_group("a corpus, shard by shard (needs the extra corpus)")
    corpus.add_argument(
        "--corpus",
        nargs="+",
        default=[],
        metavar="FILE",
        help="texts as in --input; --output is then a directory, which a later call completes "
        "without --resume",
    )
    corpus.add_argument(
        "--num-proc",
        type=positive_integer,
        default=1,
        metavar="N",
        help="processes on this machine, with one thread each",
    )
    corpus.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="address, or scheduler file, of a Dask cluster whose workers translate instead",
    )
    corpus.add_argument(
        "--shard-lines",
        type=positive_integer,
        default=16_384,
        metavar="N",
        help="lines of a shard, which takes some minutes of a processor",
    )
    search = parser.add_argument_group("search (default: as saved with the model)")
    add_search_options(search)
    search.add_argument("--n-best", type=positive_integer, metavar="N", help="outputs per line")
    search.add_argument(
        "--minimum-risk",
        choices=("chrf", "bleu"),
        help="choose among several outputs the one that is most similar to the others",
    )
    search.add_argument(
        "--candidates",
        type=positive_integer,
        default=16,
        metavar="N",
        help="outputs per line that --minimum-risk compares",
    )
    search.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="put placeholders, addresses, paths, options, emoji and unknown characters into an "
        "output that lacks them",
    )
    add_pattern_option(search)
    search.add_argument(
        "--glossary",
        type=os.path.abspath,  # workers have another working directory
        metavar="FILE",
        help="terms that outputs must have: a .tsv of source and target, and optionally 1 or 0 for "
        "`case` and `exact` (docs/terms.md)",
    )
    work = parser.add_argument_group("computation")
    add_engine_options(work)
    work.add_argument(
        "--ensemble-with",
        nargs="+",
        default=[],
        metavar="MODEL",
        help="further models, with the same vocabulary; their probabilities are averaged",
    )
    add_compute_type_option(work)
    work.add_argument("--seed", type=int, default=0, help="seed of the random numbers for sampling")
    return parser.parse_words(words)


def run(options: argparse.Namespace) -> None:
    """Translates in the order of the lines, or shard by shard."""
    check_usage(
        (
            sum(map(bool, (options.lines, options.input, options.corpus, options.document))) > 1,
            "give the lines as arguments, in --input, --corpus or --document: one of these",
        ),
        (options.corpus and not options.output, "--corpus needs --output, the name of a directory"),
        (
            options.tsv and (options.json or options.alignment),
            "--tsv, --json and --alignment write lines of different forms: give one",
        ),
        (
            options.document
            and (options.tsv or options.json or options.alignment or options.n_best),
            "--document writes a document: --tsv, --json, --alignment and --n-best are for lines",
        ),
        (
            options.resume and not (options.corpus or (options.input and options.output)),
            "--resume needs --input and --output",
        ),
    )
    if options.corpus:
        from vanilla_transformer.commands.corpus_shards import translate_corpus

        translate_corpus(options)
        return
    if options.document:
        _translate_document(options)
        return
    if is_made_already(options):
        return
    check_output(options, {"--input": options.input})
    from transformers import set_seed

    translator = load_translator(options)
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"engine: {translator.engine.name}", file=sys.stderr)
    lines = source_lines(options.lines, options.input)
    if options.resume:

        def write(first: int, chunk: list[str], stream: TextIO) -> None:
            set_seed(options.seed + first)
            print_outputs(translator, options, chunk, stream)

        made_from = {**identity(options), "input": file_identity(options.input)}
        write_in_chunks(options, made_from, lines, write, len(FileLines(options.input)), "texts")
    else:
        set_seed(options.seed)
        with open_output(options.output) as stream:
            shows = not stream.isatty()  # else a bar and the outputs would mix
            print_outputs(translator, options, lines, stream, shows)


def _translate_document(options: argparse.Namespace) -> None:
    """Translates the texts of a document."""
    from transformers import set_seed

    from vanilla_transformer.documents.formats import read_document
    from vanilla_transformer.inference.documents import translate_document

    file = existing_file(options.document)
    document = read_document(options.document, file.read_bytes())
    translator = load_translator(options)
    (direction,) = translator.directions(1, **languages_of(options))
    language = options.target_language or direction.target or "translated"
    options.output = options.output or str(file.with_suffix(f".{language}{file.suffix}"))
    check_output(options, {"--document": options.document})
    set_seed(options.seed)
    content = translate_document(translator, document, progress=True, **_translate_options(options))
    output = Path(options.output).resolve()
    with explained_full_disk(output), replaced_file(output) as unfinished:
        unfinished.write_bytes(content)
    print(f"{options.output}: written.", file=sys.stderr)


def _translate_options(options: argparse.Namespace) -> dict[str, Any]:
    """Returns what decides the outputs, by the names of `Translator.translate`."""
    return {
        "minimum_risk": options.minimum_risk,
        "keep": options.keep,
        "keep_patterns": options.keep_patterns,
        "glossary": options.glossary,
        "batch_tokens": options.batch_tokens,
        **languages_of(options),
        **_numbers_of_outputs(options),
        **search_options(options),
    }


def identity(options: argparse.Namespace) -> dict[str, Any]:
    """Returns what decides the outputs of a source."""
    names = (
        "json",
        "tsv",
        "alignment",
        "minimum_risk",
        "keep",
        "keep_patterns",
        "engine",
        "compute_type",
        "seed",
    )
    return {
        "model": file_identity(options.model),
        "ensemble_with": [file_identity(path) for path in options.ensemble_with],
        **{name: getattr(options, name) for name in names},
        "glossary": options.glossary and file_identity(options.glossary),
        **languages_of(options),
        **_numbers_of_outputs(options),
        **search_options(options),
    }


def _numbers_of_outputs(options: argparse.Namespace) -> dict[str, Any]:
    """Returns how many outputs are computed and returned."""
    numbers = {"n_best": options.n_best}
    if options.minimum_risk:
        numbers["candidates"] = options.candidates
    return numbers


def load_translator(options: argparse.Namespace) -> "Translator":
    """Loads the model, and checks the options of the search."""
    from vanilla_transformer.inference.translator import Translator

    translator = Translator.from_pretrained(
        [options.model, *options.ensemble_with],
        options.engine,
        options.device,
        options.compute_type,
    )
    with usage_errors():
        search = translator.resolve_search(
            **_numbers_of_outputs(options), **search_options(options)
        )
        translator.directions(1, **languages_of(options), search=search)
    return translator


def print_outputs(
    translator: "Translator",
    options: argparse.Namespace,
    lines: Iterable[str],
    stream: TextIO,
    progress: bool = False,
) -> None:
    """Translates lines, and prints the outputs as the options say."""
    from vanilla_transformer.inference.results import without_infinities

    # A list or a file can be read a second time beside the outputs; a stream cannot.
    texts, sources = (lines, lines) if isinstance(lines, Sized) else tee(lines)
    outputs = translator.translate(
        texts,
        return_scores=options.json,
        return_tokens=options.json,
        return_alignment=options.alignment == "tokens",
        return_word_alignment=options.alignment == "words",
        progress=progress,
        **_translate_options(options),
    )
    for output, source in zip(outputs, sources, strict=True):
        several = output if isinstance(output, list) else [output]
        if options.json:
            content = {"source": source, "outputs": [_output_fields(best) for best in several]}
            print(json.dumps(without_infinities(content), ensure_ascii=False), file=stream)
            continue
        for best in several:
            text = _output_line(best)
            print_line(f"{_as_cell(source)}\t{_as_cell(text)}" if options.tsv else text, stream)


def _as_cell(text: str) -> str:
    """Returns a text as a cell of a line of cells: tabs become spaces."""
    return text.replace("\t", " ")


def _output_line(output: Any) -> str:
    """Returns a text, with its links behind it if there are any."""
    if isinstance(output, str):
        return output
    links = output.alignment if output.word_alignment is None else output.word_alignment
    text = output.text.replace("|||", "&#124;" * 3)  # as Moses writes it
    return f"{text} ||| {format_links(links)}".rstrip()


def _output_fields(output: "Translation") -> dict[str, Any]:
    fields = {name: value for name, value in asdict(output).items() if value is not None}
    return {**fields, "token_scores": [round(score, 4) for score in fields["token_scores"]]}
