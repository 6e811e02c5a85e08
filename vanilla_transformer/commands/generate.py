"""Generates one output per line of text."""

import argparse
import gzip
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from transformers import set_seed
from transformers.utils import logging

from vanilla_transformer.data.text_files import decode_lines, existing_file, read_lines
from vanilla_transformer.inference.generation import generate_lines
from vanilla_transformer.inference.loading import load_model


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
