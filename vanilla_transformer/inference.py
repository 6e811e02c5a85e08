"""Loading a saved model with its tokenizer, and turning lines of text into lines of text."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import torch
from tqdm.auto import tqdm
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, set_seed
from transformers.utils import logging

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.pipeline_vanilla_transformer import (
    Seq2SeqGenerationPipeline,
)
from vanilla_transformer.pipeline_vanilla_transformer import (
    evaluation_mode as evaluation_mode,  # a name of this module too
)

_LINES_AT_ONCE = 4096


def load_model(path: str, device: str | torch.device | None = None) -> tuple[Any, Any]:
    """Loads a model and its tokenizer through the Auto classes, ready for inference.

    Args:
        path: Directory, or name on the Hub.
        device: Where the model goes; None: a GPU if there is one.

    Returns:
        (model, tokenizer).

    Raises:
        ValueError: If the directory holds another kind of model, or weights that cannot be read.
        FileNotFoundError: If it is a path that does not exist.
    """
    check_model_directory(path)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model = load_weights(path).to(device).eval()
    return model, AutoTokenizer.from_pretrained(path)


def load_weights(path: str, **changes: Any) -> Any:
    """Loads a model through its Auto class.

    Args:
        path: Directory, or name on the Hub.
        **changes: Fields of the config to change, e.g. `dropout=0.3`.

    Returns:
        The model.

    Raises:
        ValueError: If the weights cannot be read, or do not fit the config with its changes.
    """
    try:
        model, report = AutoModelForSeq2SeqLM.from_pretrained(
            path, output_loading_info=True, **changes
        )
    except Exception as error:
        if "safetensor" not in f"{type(error).__name__} {error}".lower():
            raise
        raise ValueError(
            f"The weights in {path!r} cannot be read ({error}); the file is damaged or was cut "
            "off: copy it again, or use an earlier checkpoint."
        ) from error
    unfit = {name: sorted(map(str, keys)) for name, keys in report.items() if keys}
    if unfit:
        raise ValueError(
            f"The weights in {path!r} do not fit the architecture asked for ({unfit}): leave its "
            "fields as they were saved, or train a new model."
        )
    return model


def check_model_directory(path: str) -> None:
    """Refuses a local directory that does not hold a model of this package.

    Args:
        path: Directory, or name on the Hub (which is not looked at).

    Raises:
        FileNotFoundError: If it looks like a path and does not exist.
        ValueError: If it has no config, or the config of another kind of model.
    """
    folder = Path(path)
    if not folder.exists():
        if path.startswith((".", "/", "~")) or path.count("/") > 1:
            raise FileNotFoundError(f"The model directory {path!r} does not exist.")
        return
    config = folder / "config.json"
    if not config.is_file():
        raise ValueError(f"{path!r} holds no config.json: it is no saved model.")
    found = json.loads(config.read_text(encoding="utf-8")).get("model_type")
    if found != VanillaTransformerConfig.model_type:
        raise ValueError(
            f"{path!r} holds a model of type {found!r}, not "
            f"{VanillaTransformerConfig.model_type!r}: give a directory that this package saved."
        )


def generate_lines(
    model: Any,
    tokenizer: Any,
    lines: Iterable[str],
    *,
    batch_size: int = 32,
    progress: bool = False,
    **generation: Any,
) -> Iterator[list[str]]:
    """Generates outputs for lines of text, in their order.

    Lines are read in chunks and sorted by length within one, so memory is bounded and batches hold
    little padding.

    Args:
        model: A sequence-to-sequence model; dropout is off for it here, and as before afterwards.
        tokenizer: Its tokenizer.
        lines: Source texts; an empty one gives empty outputs.
        batch_size: Lines per batch.
        progress: Whether to show a progress bar on standard error.
        **generation: Passed to `model.generate`, e.g. `num_beams`, `num_return_sequences`.

    Yields:
        For each line its outputs, `num_return_sequences` of them (1 by default).
    """
    remaining = iter(lines)
    with tqdm(disable=not progress, unit=" lines") as bar:
        while chunk := list(islice(remaining, _LINES_AT_ONCE)):
            yield from _generate_chunk(model, tokenizer, chunk, batch_size, bar, generation)


def _generate_chunk(
    model: Any,
    tokenizer: Any,
    chunk: Sequence[str],
    batch_size: int,
    bar: Any,
    generation: dict[str, Any],
) -> list[list[str]]:
    device = None if getattr(model, "hf_device_map", None) else model.device
    pipe = Seq2SeqGenerationPipeline(model=model, tokenizer=tokenizer, device=device)
    default = model.generation_config.num_return_sequences or 1
    outputs = [[""] * (generation.get("num_return_sequences") or default) for _ in chunk]
    by_length = sorted((i for i, line in enumerate(chunk) if line.strip()), key=_length_in(chunk))
    bar.update(len(chunk) - len(by_length))
    texts = (chunk[i] for i in by_length)
    for index, found in zip(
        by_length, pipe(texts, batch_size=batch_size, **generation), strict=True
    ):
        outputs[index] = [output["generated_text"] for output in found]
        bar.update()
    return outputs


def _length_in(chunk: Sequence[str]) -> Any:
    return lambda index: len(chunk[index])


def main(argv: Sequence[str] | None = None) -> None:
    """Generates for lines given as arguments, in a file, or on standard input.

    Args:
        argv: Arguments; None: those of the process.

    Raises:
        ValueError: If the output file exists, or the model cannot be loaded.
    """
    options = _parse(argv)
    if options.output and Path(options.output).exists() and not options.overwrite:
        raise ValueError(
            f"`--output` {options.output!r} exists: add --overwrite or choose another."
        )
    logging.disable_progress_bar()
    model, tokenizer = load_model(options.model, options.device)
    set_seed(options.seed)
    search = {
        name: getattr(options, name) for name in _SEARCH if getattr(options, name) is not None
    }
    outputs = generate_lines(
        model,
        tokenizer,
        _read_lines(options),
        batch_size=options.batch_size,
        progress=sys.stderr.isatty(),
        **search,
    )
    with ExitStack() as stack:
        stream: TextIO = sys.stdout
        if options.output:
            stream = stack.enter_context(open(options.output, "w", encoding="utf-8"))
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
        for texts in outputs:
            stream.writelines(f"{_one_line(text)}\n" for text in texts)
            stream.flush()


def _one_line(text: str) -> str:
    """Keeps outputs aligned with lines: a byte-level model can generate a line break."""
    return text.replace("\r", " ").replace("\n", " ")


_SEARCH = {
    "num_beams": int,
    "num_return_sequences": int,
    "max_new_tokens": int,
    "length_penalty": float,
    "do_sample": bool,
    "temperature": float,
    "top_k": int,
    "top_p": float,
}


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Generate one output per line of text, in order.")
    parser.add_argument("model", help="directory of a saved model, or its name on the Hub")
    parser.add_argument("lines", nargs="*", help="texts; none: read --input or standard input")
    parser.add_argument("--input", help="file of one text a line, UTF-8")
    parser.add_argument("--output", help="file to write; none: standard output")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing --output")
    parser.add_argument("--batch_size", type=int, default=32, help="lines per batch")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...; none: a GPU if there is one")
    parser.add_argument("--seed", type=int, default=0, help="for sampling")
    search = parser.add_argument_group("search", "none given: as saved with the model")
    for name, kind in _SEARCH.items():
        if kind is bool:
            search.add_argument(f"--{name}", action="store_true", default=None)
        else:
            search.add_argument(f"--{name}", type=kind)
    return parser.parse_args(argv)


def _read_lines(options: argparse.Namespace) -> Iterator[str]:
    if options.lines:
        yield from options.lines
        return
    with ExitStack() as stack:
        stream = sys.stdin.buffer
        if options.input:
            stream = stack.enter_context(open(options.input, "rb"))
        for number, line in enumerate(stream, start=1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"Line {number} of {options.input or 'standard input'} is no UTF-8 ({error}): "
                    "convert the text."
                ) from error
