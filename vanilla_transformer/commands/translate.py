"""Translates lines, files and pipes with the fastest engine that is installed."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vanilla_transformer.command_line import UsageError
from vanilla_transformer.commands.files import FileLines, check_output, open_output
from vanilla_transformer.commands.translation import (
    Options,
    load_memory,
    load_translator,
    print_outputs,
    print_review,
)
from vanilla_transformer.files.atomic_files import explained_full_disk, replaced_file
from vanilla_transformer.files.text_files import decode_lines

EXAMPLES = """
vanilla-transformer translate runs/multi30k "A dog runs through the snow."
cat big.en | vanilla-transformer translate runs/multi30k --num-beams 5 > big.de
vanilla-transformer translate runs/multi30k --input big.en --output big.de
vanilla-transformer translate runs/multi30k --document report.docx
vanilla-transformer translate runs/multi30k --alignment words "A dog runs through the snow."
vanilla-transformer translate runs/multi30k --corpus a.en b.en.gz --output out --tsv --num-proc 8
"""


def run(options: Options) -> None:
    """Translates in the order of the lines, or shard by shard."""
    files = options.files
    if options.corpus.files:
        from vanilla_transformer.commands.corpus_shards import translate_corpus

        translate_corpus(options)
    elif files.document:
        _translate_document(options, files.document)
    else:
        check_output(files, {"--input": files.input})
        _translate_lines(options)


def _translate_lines(options: Options) -> None:
    """Translates lines in their order."""
    from transformers import set_seed

    files = options.files
    translator = load_translator(options)
    lines: Iterable[str] = options.lines
    if not lines:  # a file and standard input are read as a stream
        standard_input = decode_lines(sys.stdin.buffer, "standard input")
        lines = FileLines(files.input) if files.input else standard_input
    set_seed(options.computation.seed)
    with open_output(files.output) as stream:
        shows = not stream.isatty()  # else a bar and the outputs would mix
        print_outputs(translator, options, lines, stream, shows, files.input)


def _translate_document(options: Options, path: str) -> None:
    """Translates the texts of a document."""
    from transformers import set_seed

    from vanilla_transformer.documents.formats import read_document
    from vanilla_transformer.documents.memory_files import read_versions
    from vanilla_transformer.documents.translation import marked_of, translate_document
    from vanilla_transformer.text.memory import Memory

    file = Path(path)
    document = read_document(path, file.read_bytes(), options.files.front_matter or ())
    if options.files.fuzzy_below and not document.marks_doubt:
        raise UsageError(f"{path} cannot say that a text is doubtful: leave out --fuzzy-below")
    translator = load_translator(options)
    (direction,) = translator.directions(1, **options.languages.named())
    language = options.languages.target_language or direction.target or "translated"
    output = options.files.output or str(file.with_suffix(f".{language}{file.suffix}"))
    check_output(replace(options.files, output=output), {"--document": path})
    set_seed(options.computation.seed)
    memory = load_memory(translator, options)
    memories = [] if options.search.no_memory else [Memory(document.pairs)]
    former: Sequence[Any] = ()
    if options.files.previous and options.files.existing:
        former, all_former = read_versions(options.files.previous, options.files.existing, document)
        memories.append(all_former)
    memories += [] if memory is None else [memory]
    percent, fuzzy_below = options.files.review, options.files.fuzzy_below or 0

    def review(outputs: Sequence[Any]) -> None:
        # The model has written the others, some of them with a similar text before it.
        known = [
            output.from_memory for output in outputs if marked_of(output) and output.from_memory
        ]
        if known or former or memory is not None:
            similar = sum(not found.is_exact for found in known)
            doubtful = f", {similar} of them from similar texts, marked as doubtful" * bool(similar)
            print(
                f"{len(known)} of {len(outputs)} texts come from memory{doubtful}.", file=sys.stderr
            )
        locations = [f"{path}, {location}" for location in document.locations]
        texts = [marked.text for marked in document.texts]
        if percent is not None:
            print_review(zip(locations, texts, outputs, strict=True), percent)

    content = translate_document(
        translator,
        document,
        review,
        fuzzy_below,
        memories,
        former,
        return_scores=percent is not None or fuzzy_below > 0,
        progress=True,
        **options.of_translation(),
    )
    target = Path(output).resolve()
    with explained_full_disk(target), replaced_file(target) as unfinished:
        unfinished.write_bytes(content)
    print(f"{output}: written.", file=sys.stderr)
