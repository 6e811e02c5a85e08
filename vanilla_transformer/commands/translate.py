"""`vanilla-transformer translate`: lines, files and pipes through the fastest engine."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice, tee
from typing import TYPE_CHECKING, Any, TextIO

from vanilla_transformer.commands.files import (
    as_cell,
    check_done_lines,
    check_output,
    check_resumption,
    file_identity,
    is_resumed_and_complete,
    open_resumable,
    print_line,
    source_lines,
    with_count,
)
from vanilla_transformer.commands.options import (
    CommandParser,
    add_compute_type_option,
    add_engine_options,
    add_model_argument,
    add_output_options,
    add_resume_option,
    add_search_options,
    check_usage,
    given_search_options,
    positive_integer,
    usage_of_search,
)
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.data.text_files import existing_file
from vanilla_transformer.data.word_alignment import format_links
from vanilla_transformer.extras import check_extra

if TYPE_CHECKING:
    from vanilla_transformer.inference.translator import Translator

CANDIDATES = 16
"""Outputs per line that --minimum-risk compares unless --candidates is given."""

_ENTRIES = """\
For `corpora` in a recipe, where the outputs are the targets:
  - train: {0}
Where they are the sources of a back-translation:
  - train: {0}
    columns: [2, 1]
    tag: <bt>"""

SHARD_LINES = 16_384
"""Lines of a shard unless --shard-lines is given: some minutes of a processor."""

SUMMARY = "Translates lines, files and pipes with the fastest engine that is installed."
EXAMPLES = """
vanilla-transformer translate runs/multi30k "two dogs play in the snow ."
cat big.en | vanilla-transformer translate runs/multi30k --num-beams 5 > big.de
vanilla-transformer translate runs/multi30k --input big.en --output big.de --resume
vanilla-transformer translate runs/multi30k --alignment words "two dogs play in the snow ."
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
        help="write SOURCE, a tab and OUTPUT, which is a corpus for training (docs/adapting.md)",
    )
    files.add_argument(
        "--alignment",
        choices=("words", "tokens"),
        help="add which source word (or token) each target word comes from, in Pharaoh's format: "
        "OUTPUT ||| 0-0 1-2",
    )
    corpus = parser.add_argument_group("a corpus, shard by shard (needs the extra corpus)")
    corpus.add_argument(
        "--corpus",
        nargs="+",
        default=[],
        metavar="FILE",
        help="texts as in --input; --output is then a directory, which a later call completes",
    )
    corpus.add_argument(
        "--num-proc",
        type=positive_integer,
        metavar="N",
        help="processes on this machine, with one thread each (default: 1)",
    )
    corpus.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="address, or scheduler file, of a Dask cluster whose workers translate",
    )
    corpus.add_argument(
        "--shard-lines",
        type=positive_integer,
        metavar="N",
        help=f"lines of a shard (default: {SHARD_LINES})",
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


def check(options: argparse.Namespace) -> None:
    """Checks the model's path, the files, and options that contradict each other."""
    check_usage(
        (
            options.lines and options.input,
            "give the lines as arguments or in --input, not both",
        ),
        *_rules_of_corpus(options),
        (
            options.candidates and not options.minimum_risk,
            "--candidates needs --minimum-risk, which compares them",
        ),
        (
            options.ensemble_with and options.compute_type != "float32",
            "--compute-type is for CTranslate2, which computes no --ensemble-with",
        ),
        (
            options.tsv and (options.json or options.alignment),
            "--tsv, --json and --alignment write lines of different forms: give one",
        ),
        (
            options.resume and not options.input,
            "--resume needs --input and --output",
        ),
        (
            options.resume and options.n_best and not options.json,
            "--resume with --n-best needs --json, which writes a line per source",
        ),
    )
    check_resumption(options)
    given_search_options(options)
    for path in (options.model, *options.ensemble_with):
        check_model_directory(path)
    for file in (options.input, *options.corpus):
        if file:
            existing_file(file)
    if options.corpus:
        check_extra("corpus")
    else:
        check_output(options, {"--input": options.input})
    if options.engine == "ctranslate2":
        check_extra("ctranslate2")
    if options.minimum_risk:
        check_extra("train")


def _rules_of_corpus(options: argparse.Namespace) -> list[tuple[Any, str]]:
    files, processors = options.corpus, os.cpu_count() or 1
    given = [name for name in ("num_proc", "scheduler", "shard_lines") if getattr(options, name)]
    return [
        (
            files and (options.lines or options.input),
            "give the lines in --corpus, or as arguments or in --input",
        ),
        (given and not files, "--num-proc, --scheduler and --shard-lines need --corpus"),
        (files and not options.output, "--corpus needs --output, the name of a directory"),
        (
            files and (options.resume or options.overwrite),
            "--corpus goes on where it was by itself: leave --resume and --overwrite out",
        ),
        (
            files and options.n_best and not options.json,
            "--corpus with --n-best needs --json, which writes a line per source",
        ),
        (len(set(files)) < len(files), "a file of --corpus is given twice"),
        (
            options.num_proc and options.scheduler,
            "--num-proc is for this machine: the cluster of --scheduler has workers of its own",
        ),
        (
            (options.num_proc or 1) > processors,
            f"--num-proc is {options.num_proc}, but this machine has {processors} processors",
        ),
    ]


def run(options: argparse.Namespace) -> None:
    """Translates in the order of the lines, or shard by shard."""
    check(options)
    from transformers import set_seed

    if options.corpus:
        from vanilla_transformer.commands.corpus_shards import translate_corpus

        translate_corpus(options)
        return
    if is_resumed_and_complete(options, options.input):
        return
    translator = load_translator(options)
    set_seed(options.seed)
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"engine: {translator.engine.name}", file=sys.stderr)
    origin: dict[str, Any] = {}
    if options.resume:  # what must be equal for an interrupted output to be continued
        origin = {**identity(options), "input": file_identity(options.input)}
    with open_resumable(options, origin) as (stream, done):
        if options.tsv and done:
            check_done_lines(options.output, islice(source_lines([], options.input), done))
        sources, lines = tee(islice(source_lines(options.lines, options.input), done, None))
        texts = with_count(lines, options.input, done)
        shows = not stream.isatty()  # else a bar and the outputs would mix
        print_outputs(translator, options, sources, texts, stream, shows)
    if options.tsv and options.output and os.path.getsize(options.output):
        print(_ENTRIES.format(json.dumps(options.output, ensure_ascii=False)), file=sys.stderr)


def identity(options: argparse.Namespace) -> dict[str, Any]:
    """Returns what decides the outputs of a source."""
    names = ("json", "tsv", "alignment", "minimum_risk", "engine", "compute_type", "seed")
    return {
        "model": file_identity(options.model),
        "ensemble_with": [file_identity(path) for path in options.ensemble_with],
        **{name: getattr(options, name) for name in names},
        **_numbers_of_outputs(options),
        **given_search_options(options),
    }


def _numbers_of_outputs(options: argparse.Namespace) -> dict[str, Any]:
    """Returns how many outputs are computed and returned."""
    choice = {"n_best": options.n_best}
    if options.minimum_risk:
        choice["candidates"] = options.candidates or CANDIDATES
    return choice


def load_translator(options: argparse.Namespace) -> "Translator":
    """Loads the model, and checks the options of the search."""
    from vanilla_transformer.inference.translator import Translator

    translator = Translator.from_pretrained(
        [options.model, *options.ensemble_with],
        options.engine,
        options.device,
        options.compute_type,
    )
    with usage_of_search():
        translator.resolve_search(**_numbers_of_outputs(options), **given_search_options(options))
    return translator


def print_outputs(
    translator: "Translator",
    options: argparse.Namespace,
    sources: Iterator[str],
    texts: Iterable[str],
    stream: TextIO,
    progress: bool = False,
) -> None:
    """Translates texts, and prints the outputs as the options say.

    Args:
        sources: The same texts again, which are read as the outputs come.
    """
    outputs = translator.translate(
        texts,
        minimum_risk=options.minimum_risk,
        return_scores=options.json,
        return_tokens=options.json,
        return_alignment=options.alignment == "tokens",
        return_word_alignment=options.alignment == "words",
        batch_tokens=options.batch_tokens,
        progress=progress,
        **_numbers_of_outputs(options),
        **given_search_options(options),
    )
    for found in outputs:
        several = found if isinstance(found, list) else [found]
        source = next(sources)
        if options.json:
            described = [_output_fields(one) for one in several]
            content = {"source": source, "outputs": described}
            line = json.dumps(content, ensure_ascii=False, allow_nan=False)
            print(line, file=stream)
            continue
        start = f"{as_cell(source)}\t" if options.tsv else ""
        for output in several:
            text = _output_line(output)
            print_line(f"{start}{as_cell(text) if options.tsv else text}", stream)
    if next(sources, None) is not None:
        raise ValueError("There are fewer outputs than lines: the output is not complete.")


def _output_line(output: Any) -> str:
    """Returns a text, with its links behind it if there are any."""
    if isinstance(output, str):
        return output
    links = output.alignment if output.word_alignment is None else output.word_alignment
    return f"{output.text} ||| {format_links(links)}".rstrip()


def _output_fields(output: Any) -> dict[str, Any]:
    from vanilla_transformer.inference.results import finite_or_none

    fields = {name: value for name, value in asdict(output).items() if value is not None}
    fields["score"] = finite_or_none(fields["score"])
    fields["token_scores"] = [finite_or_none(round(v, 4)) for v in fields["token_scores"]]
    return fields
