"""Translates lines, files and pipes with the fastest engine that is installed."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vanilla_transformer.command_line import UsageError
from vanilla_transformer.commands.files import (
    FileLines,
    check_glossary,
    check_languages,
    check_output,
    check_shards,
    open_output,
)
from vanilla_transformer.commands.translation import (
    Options,
    load_memories,
    load_translator,
    print_outputs,
    print_review,
    read_memory,
)
from vanilla_transformer.files.atomic_files import explained_full_disk, replaced_file
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.files.text_files import check_files, decode_lines

EXAMPLES = """
vanilla-transformer translate runs/multi30k "A dog runs through the snow."
cat big.en | vanilla-transformer translate runs/multi30k --num-beams 5 > big.de
vanilla-transformer translate runs/multi30k --input big.en --output big.de
vanilla-transformer translate runs/multi30k --document report.docx
vanilla-transformer translate runs/multi30k --alignment words "A dog runs through the snow."
vanilla-transformer translate runs/multi30k --corpus a.en b.en.gz --output out --tsv --num-proc 8
"""


def check(options: Options) -> None:
    """Checks paths and languages."""
    files, request = options.files, options.request
    for model in (options.model, *options.computation.ensemble_with):
        check_model_directory(model)
    read_from = {"--input": files.input, "--document": files.document}
    if named := next(filter(os.path.isfile, options.lines), None):
        raise UsageError(f"{named!r} is a file: give it by --input (lines) or --document")
    missing = [path for path in request.memory if not os.path.exists(path)]
    if missing and not (options.lines or options.corpus.files or any(read_from.values())):
        raise UsageError(f"{missing[0]!r} is no file: put texts after `--`")
    check_files(*read_from.values(), *options.corpus.files, *request.memory)
    check_files(files.previous, files.existing)
    check_glossary(request.glossary)
    given = request.source_language, request.target_language
    languages = check_languages(options.model, *given, options.lines)
    if languages and request.memory and not options.corpus.files:  # or else its workers read it
        read_memory(tuple(request.memory), *languages)
    if files.document:
        from vanilla_transformer.documents.formats import reader_of

        reader_of(files.document)
    if options.corpus.files:
        check_shards(Path(files.output or ""))
    else:
        check_output(files.output, files.overwrite, read_from)


def run(options: Options) -> None:
    """Translates in the order of the lines, or shard by shard."""
    files = options.files
    if options.corpus.files:
        from vanilla_transformer.commands.corpus_shards import translate_corpus

        translate_corpus(options)
    elif files.document:
        _translate_document(options, files.document)
    else:
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
    from vanilla_transformer.documents.translation import plan_document, run_document
    from vanilla_transformer.documents.versions import read_versions
    from vanilla_transformer.text.memory import Memory

    file, files = Path(path), options.files
    document = read_document(path, file.read_bytes(), files.front_matter or ())
    if files.fuzzy_below and not document.marks_doubt:
        raise UsageError(f"{path} cannot say that a text is doubtful: leave out --fuzzy-below")
    memories = [] if options.request.no_memory else [Memory(document.pairs)]
    former: Sequence[Any] = ()
    if files.previous and files.existing:
        keys = files.front_matter or ()
        former, all_former = read_versions(files.previous, files.existing, document, keys)
        memories.append(all_former)
    translator = load_translator(options)
    (direction,) = translator.directions(1, options.request)
    language = options.request.target_language or direction.target or "translated"
    output = files.output or str(file.with_suffix(f".{language}{file.suffix}"))
    if not files.output:
        check_output(output, files.overwrite, {"--document": path})
    if not document.texts:
        print(f"No text in {path} is to be translated.", file=sys.stderr)
    set_seed(options.computation.seed)
    given = load_memories(options, translator)
    planned = plan_document(translator, document, options.asked, [*memories, *given], former)
    translated = run_document(translator, document, planned, files.fuzzy_below or 0, progress=True)
    known = [marked for marked in translated.written if marked and marked.is_known]
    if known or former or given:
        told = f"{len(known)} of {len(document.texts)} texts come from memory"
        if similar := sum(marked.is_doubtful for marked in known):
            told += f", {similar} of them from similar texts, marked as doubtful"
        print(f"{told}.", file=sys.stderr)
    if files.review is not None:
        locations = [f"{path}, {row.location}" for row in document.texts]
        texts = [text.marked.plain for text in document.texts]
        print_review(zip(locations, texts, translated.outputs, strict=True), files.review)
    target = Path(output).resolve()
    with explained_full_disk(target), replaced_file(target) as unfinished:
        unfinished.write_bytes(translated.content)
    print(f"{output}: written.", file=sys.stderr)
