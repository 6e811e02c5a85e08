"""What `score` and `align` share: pairs of lines go through a model chunk by chunk."""

from collections.abc import Callable
from typing import Any, TextIO

from vanilla_transformer.commands.files import FileLines, file_identity, write_in_chunks
from vanilla_transformer.commands.options import usage_errors
from vanilla_transformer.data.text_files import read_line_pairs


def compute_pairs(
    options: Any, engine: str, method: str, describe: Callable[[Any], str], **identity: Any
) -> None:
    """Computes each pair in the order of the lines, and writes a line on it.

    Args:
        options: Those of the subcommand: `model`, `files`, `languages` and `computation`.
        method: The method of `Translator`, "score" or "align".
        describe: Returns the line on what the method returns of a pair.
        identity: What else decides the output.
    """
    from vanilla_transformer.inference.translator import LongSourceError, Translator

    files, computation, languages = options.files, options.computation, options.languages.named()
    translator = Translator.from_pretrained(options.model, engine, computation.device)
    with usage_errors():
        translator.directions(1, **languages)
    compute = getattr(translator, method)

    def write(first: int, pairs: list[tuple[str, str]], stream: TextIO) -> None:
        sources, targets = zip(*pairs, strict=True)
        try:
            results = compute(sources, targets, batch_tokens=computation.batch_tokens, **languages)
        except LongSourceError as error:
            line = first + 1 + error.number
            raise ValueError(f"{files.source}, line {line}: it {error.problem}") from error
        for result in results:
            print(describe(result), file=stream)

    identity |= {
        "model": file_identity(options.model),
        "source": file_identity(files.source),
        "target": file_identity(files.target),
        **languages,
    }
    pairs = read_line_pairs(files.source, files.target)
    write_in_chunks(files, identity, pairs, write, len(FileLines(files.source)), "pairs")
