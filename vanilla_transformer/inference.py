"""Loading a saved model with its tokenizer, and turning lines of text into lines of text."""

import argparse
import gzip
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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
from vanilla_transformer.text_files import decode_lines, existing_file, read_lines

logger = logging.get_logger(__name__)

NO_LIMIT = 10**9  # a tokenizer without a limit says so with a larger number

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
        FileNotFoundError: If it does not exist, or holds no weights or no tokenizer.
    """
    check_model_directory(path)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = load_tokenizer(path)
    return load_weights(path).to(device).eval(), tokenizer


def load_tokenizer(path: str) -> Any:
    """Loads a tokenizer through its Auto class.

    Args:
        path: Directory, or name on the Hub.

    Returns:
        The tokenizer.

    Raises:
        FileNotFoundError: If there is no such directory and no such name, or no tokenizer in it.
    """
    folder = Path(path)
    if folder.exists() and not list(folder.glob("tokenizer*.json")):
        raise FileNotFoundError(
            f"{path!r} holds no tokenizer: save one there by `tokenizer.save_pretrained`."
        )
    with _found_or_named(path):
        return AutoTokenizer.from_pretrained(path)


@contextmanager
def _found_or_named(path: str) -> Iterator[None]:
    """Says of a path that does not exist that it does not, whatever the Hub's client says."""
    try:
        yield
    except OSError as error:
        if Path(path).exists():
            raise
        raise FileNotFoundError(
            f"{path!r} is no directory here, and could not be had from the Hub: check its name "
            f"({str(error).splitlines()[0]})"
        ) from error


def load_weights(path: str, **changes: Any) -> Any:
    """Loads a model through its Auto class.

    Args:
        path: Directory, or name on the Hub.
        **changes: Fields of the config to change, e.g. `dropout=0.3`.

    Returns:
        The model.

    Raises:
        ValueError: If the weights cannot be read, or do not fit the config with its changes.
        FileNotFoundError: If there are none.
    """
    try:
        with _found_or_named(path):
            model, report = AutoModelForSeq2SeqLM.from_pretrained(
                path, output_loading_info=True, **changes
            )
    except OSError as error:
        if Path(path).is_dir() and not list(Path(path).glob("*.safetensors*")):
            raise FileNotFoundError(
                f"{path!r} holds no weights (model.safetensors): copy them there, or use another "
                "directory."
            ) from error
        raise
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
        ValueError: If it has no config, a damaged one, or that of another kind of model.
    """
    folder = Path(path)
    if not folder.exists():
        if path.startswith((".", "/", "~")) or path.count("/") > 1:
            raise FileNotFoundError(f"The model directory {path!r} does not exist.")
        return
    config = folder / "config.json"
    if not config.is_file():
        raise ValueError(f"{path!r} holds no config.json: it is no saved model.")
    try:
        found = json.loads(config.read_text(encoding="utf-8")).get("model_type")
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{str(config)!r} is no config ({error}): it may be cut short; copy it again."
        ) from error
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
    _warn_of_long_lines(tokenizer, chunk)
    by_length = sorted((i for i, line in enumerate(chunk) if line.strip()), key=_length_in(chunk))
    bar.update(len(chunk) - len(by_length))
    texts = (chunk[i] for i in by_length)
    for index, found in zip(
        by_length, pipe(texts, batch_size=batch_size, **generation), strict=True
    ):
        outputs[index] = [output["generated_text"] for output in found]
        bar.update()
    return outputs


def _warn_of_long_lines(tokenizer: Any, chunk: Sequence[str]) -> None:
    """Says how many lines will be truncated, where there is a limit."""
    limit = tokenizer.model_max_length
    if limit >= NO_LIMIT:
        return
    encoded = tokenizer(list(chunk), truncation=False, verbose=False)
    if cut := sum(len(ids) > limit for ids in encoded["input_ids"]):
        logger.warning(f"{cut} of {len(chunk)} sources are truncated to {limit} tokens.")


def _length_in(chunk: Sequence[str]) -> Any:
    return lambda index: len(chunk[index])


def main(argv: Sequence[str] | None = None) -> None:
    """Generates for lines given as arguments, in a file, or on standard input.

    Args:
        argv: Arguments; None: those of the process.

    Raises:
        FileNotFoundError: If the input file or the model does not exist.
        ValueError: If the output file exists or is the input, if lines are given twice, if the
            input is no UTF-8, or if the model cannot be loaded.
    """
    options = _parse(argv)
    _check(options)
    logging.disable_progress_bar()
    model, tokenizer = load_model(options.model, options.device)
    set_seed(options.seed)
    search = {
        name: getattr(options, name) for name in _SEARCH if getattr(options, name) is not None
    }
    outputs = generate_lines(
        model,
        tokenizer,
        _read(options),
        batch_size=options.batch_size,
        progress=sys.stderr.isatty(),
        **search,
    )
    with _writing(options.output) as stream:
        for texts in outputs:
            stream.writelines(f"{_one_line(text)}\n" for text in texts)
            stream.flush()


def _check(options: argparse.Namespace) -> None:
    """Refuses what would fail, or lose something, after the model is loaded."""
    if options.batch_size < 1:
        raise ValueError(f"`--batch_size` is {options.batch_size}: it must be at least 1.")
    if options.lines and options.input:
        raise ValueError(f"Lines and `--input` {options.input!r} are both given: give one of them.")
    if options.input:
        existing_file(options.input)
    if options.output is None:
        return
    output = Path(options.output)
    if output.exists() and not options.overwrite:
        raise ValueError(
            f"`--output` {options.output!r} exists: add --overwrite or choose another."
        )
    if options.input and output.exists() and output.samefile(options.input):
        raise ValueError(f"`--output` {options.output!r} is the `--input`: choose another file.")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{str(output.parent)!r}, for `--output`, is no directory: make it")


@contextmanager
def _writing(path: str | None) -> Iterator[TextIO]:
    """Opens standard output, or a file that takes the place of an older one when it is complete."""
    if path is None:
        with _reader_may_leave():
            yield sys.stdout
    elif Path(path).exists() and not Path(path).is_file():  # a device or a pipe
        with open(path, "w", encoding="utf-8") as stream:
            yield stream
    else:
        unfinished = Path(f"{path}.unfinished")
        opened: Any = gzip.open if path.endswith(".gz") else open
        with opened(unfinished, "wt", encoding="utf-8") as stream:
            yield stream
        unfinished.replace(path)


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Ends the program quietly when the reader of standard output, such as `head`, is gone."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        yield
    except BrokenPipeError:
        # The interpreter writes what is left when it ends, and shall not fail then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


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
    parser.add_argument("--input", help="file of one text a line, UTF-8, plain or .gz")
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
    return parser.parse_intermixed_args(argv)  # lines may stand after options


def _read(options: argparse.Namespace) -> Iterable[str]:
    if options.lines:
        return list(options.lines)
    if options.input:
        return read_lines(options.input)
    return decode_lines(sys.stdin.buffer, "standard input")
