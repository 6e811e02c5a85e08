"""What `score` and `align` share: pairs of lines go through a model chunk by chunk."""

from collections.abc import Callable
from itertools import islice
from typing import Any

from vanilla_transformer.commands.files import FileLines, check_languages, check_output, open_output
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.files.text_files import check_files, read_line_pairs

LINES_PER_CHUNK = 2048


def check(options: Any) -> None:
    """Checks paths and languages of options."""
    files = options.files
    check_model_directory(options.model)
    check_files(files.source, files.target)
    languages = options.languages
    check_languages(options.model, languages.source_language, languages.target_language)
    read_from = {"--source": files.source, "--target": files.target}
    check_output(files.output, files.overwrite, read_from)


def compute_pairs(options: Any, engine: str, method: str, describe: Callable[[Any], str]) -> None:
    """Computes each pair in the order of the lines, and writes a line on it.

    Args:
        options: Those of the subcommand: `model`, `files`, `languages` and `computation`.
        method: The method of `Translator`, "score" or "align".
        describe: Returns the line on what the method returns of a pair.
    """
    from vanilla_transformer.inference.translator import LongSourceError, Translator
    from vanilla_transformer.progress import Progress

    files, computation, languages = options.files, options.computation, options.languages
    asked = {"src_lang": languages.source_language, "tgt_lang": languages.target_language}
    translator = Translator.from_pretrained(options.model, engine, computation.device)
    compute = getattr(translator, method)
    pairs, done = read_line_pairs(files.source, files.target), 0
    with (
        open_output(files.output) as stream,
        Progress(len(FileLines(files.source)), "pairs", shown=not stream.isatty()) as progress,
    ):
        while chunk := list(islice(pairs, LINES_PER_CHUNK)):
            sources, targets = zip(*chunk, strict=True)
            try:
                results = compute(sources, targets, batch_tokens=computation.batch_tokens, **asked)
            except LongSourceError as error:
                line = done + 1 + error.index
                raise ValueError(f"{files.source}, line {line}: it {error.problem}") from error
            print(*map(describe, results), sep="\n", file=stream)
            progress.update(done := done + len(chunk))
