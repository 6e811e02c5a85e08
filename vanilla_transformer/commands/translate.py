"""`vanilla-transformer translate`: lines, files and pipes through the fastest engine."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, TextIO

from vanilla_transformer.commands.checks import check_model_path, check_output_file
from vanilla_transformer.commands.options import (
    CommandParser,
    UsageError,
    add_model_argument,
    add_resume_option,
    positive_integer,
)
from vanilla_transformer.commands.outputs import open_output, print_line
from vanilla_transformer.commands.resumable_output import (
    check_nothing_is_replaced,
    continued_output,
    file_identity,
    is_complete,
    report_complete,
)
from vanilla_transformer.commands.search_options import (
    add_compute_type_option,
    add_engine_options,
    add_search_options,
    given_search_options,
    usage_of_search,
)
from vanilla_transformer.commands.sources import add_lines_argument, source_lines
from vanilla_transformer.data.text_files import existing_file
from vanilla_transformer.data.word_alignment import format_links
from vanilla_transformer.extras import check_extra

CANDIDATES = 16
"""Outputs per line that --minimum-risk compares unless --candidates is given."""

SUMMARY = "Translates lines, files and pipes with the fastest engine that is installed."
EXAMPLES = """
vanilla-transformer translate runs/multi30k "two dogs play in the snow ."
cat big.en | vanilla-transformer translate runs/multi30k --num-beams 5 > big.de
vanilla-transformer translate runs/multi30k --input big.en --output big.de --resume
vanilla-transformer translate runs/multi30k --alignment words "two dogs play in the snow ."
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("translate", SUMMARY, EXAMPLES, intermixed=True)
    add_model_argument(parser)
    add_lines_argument(parser)
    files = parser.add_argument_group("files")
    files.add_argument(
        "--input", metavar="FILE", help="source texts, one per line; UTF-8, plain or .gz"
    )
    files.add_argument("--output", metavar="FILE", help="file to write (default: print)")
    files.add_argument("--overwrite", action="store_true", help="replace an existing --output")
    add_resume_option(files)
    files.add_argument(
        "--json",
        action="store_true",
        help="write a JSON object per line: source, outputs, scores, tokens, token scores",
    )
    files.add_argument(
        "--alignment",
        choices=("words", "tokens"),
        help="add which source word (or token) each target word comes from, in Pharaoh's format: "
        "OUTPUT ||| 0-0 1-2",
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
        metavar="N",
        help=f"outputs per line that --minimum-risk compares (default: {CANDIDATES})",
    )
    _add_computation_options(parser.add_argument_group("computation"))
    return parser.parse_words(words)


def _add_computation_options(work: argparse._ArgumentGroup) -> None:
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


def check(options: argparse.Namespace) -> None:
    """Checks the model's path, the files, and options that contradict each other.

    Raises:
        UsageError: If options contradict each other.
        OSError: If a file or the model does not exist.
        ValueError: If the output file exists or is the input.
        ModuleNotFoundError: If an engine or a metric is not installed.
    """
    if options.lines and options.input:
        raise UsageError("give the lines as arguments or in --input, not both")
    if options.minimum_risk and options.n_best:
        raise UsageError("give --n-best or --minimum-risk, not both")
    if options.candidates and not options.minimum_risk:
        raise UsageError("--candidates needs --minimum-risk, which compares them")
    if options.ensemble_with and options.compute_type != "float32":
        raise UsageError("--compute-type is for CTranslate2, which computes no --ensemble-with")
    if options.resume and not (options.output and options.input):
        raise UsageError("--resume needs --input and --output")
    if options.resume and options.output.endswith(".gz"):
        raise UsageError("--resume cannot go on with a packed file: give another --output")
    if options.resume and options.n_best and not options.json:
        raise UsageError("--resume with --n-best needs --json, which writes a line per source")
    given_search_options(options)
    for path in (options.model, *options.ensemble_with):
        check_model_path(path)
    if options.input:
        existing_file(options.input)
    if options.output:
        replaces = options.overwrite or options.resume
        check_output_file(options.output, replaces, {"--input": options.input})
    if options.resume and not options.overwrite:
        check_nothing_is_replaced(options.output)
    if options.engine == "ctranslate2":
        check_extra("ctranslate2")
    if options.minimum_risk:
        check_extra("train")


def run(options: argparse.Namespace) -> None:
    """Translates in the order of the lines."""
    from transformers import set_seed
    from transformers.utils import logging

    from vanilla_transformer.inference.translator import Translator

    if options.resume and is_complete(options.output) and not options.overwrite:
        report_complete(options.output, options.input)
        return
    logging.disable_progress_bar()
    translator = Translator.from_pretrained(
        [options.model, *options.ensemble_with],
        options.engine,
        options.device,
        options.compute_type,
    )
    candidates = (options.candidates or CANDIDATES) if options.minimum_risk else None
    with usage_of_search():
        translator.resolve_search(options.n_best, candidates, **given_search_options(options))
    set_seed(options.seed)
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"engine: {translator.engine.name}", file=sys.stderr)
    if not options.resume:
        with open_output(options.output) as stream:
            _write_outputs(translator, options, stream)
        return
    with continued_output(options.output, _output_identity(options)) as (stream, done):
        _write_outputs(translator, options, stream, skip=done)


def _write_outputs(
    translator: Any, options: argparse.Namespace, stream: TextIO, skip: int = 0
) -> None:
    sources: list[str] = []

    def remembered() -> Iterator[str]:
        for line in islice(source_lines(options.lines, options.input), skip, None):
            sources.append(line)
            yield line

    choices: dict[str, Any] = {"n_best": options.n_best}
    if options.minimum_risk:
        candidates = options.candidates or CANDIDATES
        choices = {"minimum_risk": options.minimum_risk, "candidates": candidates}
    outputs = translator.translate(
        remembered(),
        return_scores=options.json,
        return_tokens=options.json,
        return_alignment=options.alignment == "tokens",
        return_word_alignment=options.alignment == "words",
        batch_tokens=options.batch_tokens,
        progress=sys.stderr is not None and sys.stderr.isatty(),
        **choices,
        **given_search_options(options),
    )
    for found in outputs:
        several = found if isinstance(found, list) else [found]
        source = sources.pop(0)
        if options.json:
            described = [_output_fields(one) for one in several]
            line = json.dumps({"source": source, "outputs": described}, ensure_ascii=False)
            print(line, file=stream)
        else:
            for output in several:
                print_line(_output_line(output), stream)


def _output_line(output: Any) -> str:
    """Returns a text, with its links behind it if there are any."""
    if isinstance(output, str):
        return output
    links = output.alignment if output.word_alignment is None else output.word_alignment
    return f"{output.text} ||| {format_links(links)}".rstrip()


def _output_fields(output: Any) -> dict[str, Any]:
    fields = asdict(output)
    fields["token_scores"] = [round(value, 4) for value in fields["token_scores"]]
    return {name: value for name, value in fields.items() if value is not None}


def _output_identity(options: argparse.Namespace) -> dict[str, Any]:
    """Returns what must be equal for an interrupted output to be continued."""
    names = (
        "json",
        "alignment",
        "n_best",
        "minimum_risk",
        "engine",
        "compute_type",
        "seed",
    )
    return {
        "model": file_identity(options.model),
        "ensemble_with": [file_identity(path) for path in options.ensemble_with],
        "input": file_identity(options.input),
        "candidates": options.candidates or CANDIDATES,
        **{name: getattr(options, name) for name in names},
        **given_search_options(options),
    }
