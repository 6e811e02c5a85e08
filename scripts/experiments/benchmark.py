"""Measures speed and memory of this package, compared with other systems that are installed.

`train` measures training steps, `generate` measures `generate()`, `load` measures how long a saved
model takes to load, `memory` measures the peak memory of a training step and of `generate()`, and
`translator` measures what `Translator` costs beyond CTranslate2.
The systems take turns, and ratios compare within a turn; see `benchmark_models.py` for the systems.
Every run measures the limits of the machine too.
"""

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from benchmark_models import GENERATING, LOADED, TRAINED, check_installed, is_installed
from benchmark_reports import Bars, draw_bars, format_machine, measure_machine, write_json
from generation_speed import (
    bars_of_generation,
    format_generation,
    make_generator,
    measure_generation,
)
from loading_speed import bars_of_loading, format_loading, measure_loading
from memory_peaks import PARTS, bars_of_peaks, format_peaks, measure_part, measure_peaks
from operation_shares import bars_of_profile, format_profile, profile_training
from training_speed import (
    KINDS,
    bars_of_training,
    format_training,
    measure_memory_of_each,
    measure_step_memory,
    measure_training,
)
from translator_speed import (
    WAYS,
    bars_of_translator,
    format_translator,
    load_translator,
    make_texts,
    measure_translator,
)

from vanilla_transformer.extras import check_extra

Results = Iterator[tuple[dict[str, Any], str, Bars]]


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the measurements of the command line, prints them and writes the files asked for."""
    argv = sys.argv[1:] if argv is None else argv
    options = parse_options(argv)
    torch.set_num_threads(options.threads)
    if options.memory_of:
        print(measure_memory_of_one(options))
        return
    check_options(options)
    machine = measure_machine(options)
    print(format_machine(machine), flush=True)
    results, bars = [], Bars()
    for result, report, heights in options.run(options, argv, machine):
        print(report, flush=True)
        results.append(result)
        bars |= heights
        if options.json:  # after each setting, so that a run that is stopped leaves what it has
            write_json(options.json, options, machine, results)
    if options.picture:
        draw_bars(bars, label_of_heights(options), options.picture)


def measure_memory_of_one(options: argparse.Namespace) -> str:
    """Measures the one system that this process is for, and returns what to print."""
    if options.command == "memory":
        return json.dumps(measure_part(options))
    return str(measure_step_memory(options.memory_of, options.kinds[0], options)["added"])


def check_options(options: argparse.Namespace) -> None:
    """Checks, before anything is measured, what a run needs in the end.

    Args:
        options: From the command line. Systems that were not chosen become those that are there.
    """
    try:
        if options.picture:
            check_extra("plot")
        if options.systems is None:
            options.systems = [name for name in options.all_systems if is_installed(name)]
            if missing := [name for name in options.all_systems if not is_installed(name)]:
                print(f"not installed, and not measured: {', '.join(missing)}", file=sys.stderr)
        for system in options.systems:
            check_installed(system)
    except ModuleNotFoundError as error:
        raise SystemExit(str(error)) from error
    for path in (options.json, options.picture):
        if path and not Path(path).absolute().parent.is_dir():
            raise SystemExit(f"{path!r} cannot be written: create its directory first.")


def label_of_heights(options: argparse.Namespace) -> str:
    """Returns what the bars of the picture show."""
    first = options.systems[0]
    return {
        "train": "share of the time" if getattr(options, "profile", False) else f"{first} = 1",
        "generate": f"tokens per second, {first} = 1",
        "load": f"less is better, {first} = 1",
        "memory": "peak memory, the first system = 1",
        "translator": "texts per second, CTranslate2 alone = 1",
    }[options.command]


def run_train(options: argparse.Namespace, argv: Sequence[str], machine: dict[str, Any]) -> Results:
    """Measures training steps on each kind of batches.

    Yields:
        A result, its report and its bars, for each kind.
    """
    for kind in options.kinds:
        if options.profile:
            shares = profile_training(kind, options)
            yield shares, format_profile(shares), bars_of_profile(shares)
            continue
        memory = {} if options.no_memory else measure_memory_of_each(kind, options, argv)
        result = measure_training(kind, options, machine)
        if memory:
            result["memory_mib"] = memory
        yield result, format_training(result), bars_of_training(result)


def run_generate(
    options: argparse.Namespace, argv: Sequence[str], machine: dict[str, Any]
) -> Results:
    """Measures `generate()` in each setting; the arguments and results are those of `run_train`."""
    with ExitStack() as stack:
        systems = {name: make_generator(name, options, stack) for name in options.systems}
        for rows, beams in itertools.product(options.rows, options.beams):
            result = measure_generation(systems, rows, beams, options, machine)
            yield result, format_generation(result), bars_of_generation(result)


def run_load(options: argparse.Namespace, argv: Sequence[str], machine: dict[str, Any]) -> Results:
    """Measures loading; the arguments and results are those of `run_train`."""
    result = measure_loading(options)
    yield result, format_loading(result), bars_of_loading(result)


def run_memory(
    options: argparse.Namespace, argv: Sequence[str], machine: dict[str, Any]
) -> Results:
    """Measures each part; the arguments and results are those of `run_train`."""
    for part in options.parts:
        if any(system in PARTS[part] for system in options.systems):
            result = measure_peaks(part, options, argv)
            yield result, format_peaks(result), bars_of_peaks(result)


def run_translator(
    options: argparse.Namespace, argv: Sequence[str], machine: dict[str, Any]
) -> Results:
    """Measures each setting; the arguments and results are those of `run_train`."""
    texts = make_texts(options)
    with tempfile.TemporaryDirectory() as folder:
        for compute_type in options.compute_types:
            translator = load_translator(options, compute_type, Path(folder))
            for beams in options.beams:
                result = measure_translator(translator, texts, beams, options)
                result["compute_type"] = compute_type
                yield result, format_translator(result), bars_of_translator(result)


# The command line -------------------------------------------------------------------------------


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Reads the command line; `run` of the options is the function of the subcommand."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_train(commands)
    _add_generate(commands)
    _add_load(commands)
    _add_memory(commands)
    _add_translator(commands)
    return parser.parse_args(argv)


def _add_command(
    commands: Any, name: str, text: str, run: Callable[..., Results], systems: Sequence[str]
) -> Callable[..., Any]:
    """Adds a subcommand with the options of all, and returns its `add_argument`."""
    parser = commands.add_parser(
        name, help=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.set_defaults(run=run, all_systems=systems, memory_of=None)
    add: Callable[..., Any] = parser.add_argument
    add("--systems", nargs="+", choices=systems, help="what to measure; None: all installed")
    add("--layers", type=int, default=6, help="layers of the encoder, and of the decoder")
    add("--d-model", "--d_model", type=int, default=512, help="width of the models")
    add("--vocab-size", "--vocab_size", type=int, default=16000, help="size of the vocabulary")
    add(
        "--attn-implementation",
        "--attn_implementation",
        default="sdpa",
        help="attention of all models of transformers, and ours",
    )
    add("--threads", type=int, default=1, help="CPU threads")
    add("--seed", type=int, default=0, help="seed of the inputs and the weights")
    add("--json", metavar="FILE", help="write options, machine and results to a file")
    add("--picture", metavar="FILE", help="draw the ratios as bars (extra plot)")
    return add


def _add_batches(add: Callable[..., Any]) -> None:
    """Adds the options of training batches."""
    add("--tokens", type=int, default=1024, help="approximate target tokens per batch")
    add("--batches", type=int, default=5, help="batches of each kind")
    add("--dropout", type=float, default=0.1, help="dropout rate")
    add("--bf16", action="store_true", help="train under autocast to bfloat16")


def _add_generation(add: Callable[..., Any]) -> None:
    """Adds the options of sources and outputs."""
    add("--new-tokens", "--new_tokens", type=int, default=64, help="tokens to generate for a row")
    add("--source-tokens", "--source_tokens", type=int, default=25, help="longest source")


def _add_device(add: Callable[..., Any]) -> None:
    add("--device", default="cpu", help="cpu, cuda, ...")


def _add_train(commands: Any) -> None:
    add = _add_command(commands, "train", "compare training steps", run_train, TRAINED)
    add("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of batches")
    _add_batches(add)
    add("--repeats", type=int, default=3, help="timed turns; the median is printed")
    _add_device(add)
    add("--no-memory", "--no_memory", action="store_true", help="measure only the speed")
    add("--profile", action="store_true", help="show only the share of each kind of operation")
    add("--memory-of", "--memory_of", choices=TRAINED, help=argparse.SUPPRESS)


def _add_generate(commands: Any) -> None:
    add = _add_command(commands, "generate", "compare generate()", run_generate, GENERATING)
    add("--rows", nargs="+", type=int, default=[1, 32], help="numbers of sources in a batch")
    add("--beams", nargs="+", type=int, default=[1, 4], help="numbers of beams; 1 is greedy")
    _add_generation(add)
    add("--bf16", action="store_true", help="weights in bfloat16; for systems of PyTorch")
    add("--repeats", type=int, default=9, help="timed turns; the median is printed")
    _add_device(add)


def _add_load(commands: Any) -> None:
    add = _add_command(commands, "load", "compare from_pretrained", run_load, LOADED)
    add("--repeats", type=int, default=5, help="loads that count; the median is printed")


def _add_memory(commands: Any) -> None:
    systems = tuple(dict.fromkeys((*TRAINED, *GENERATING)))
    add = _add_command(commands, "memory", "compare peaks of memory", run_memory, systems)
    commands.choices["memory"].set_defaults(device="cpu")
    add("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="what to measure")
    add("--kind", choices=KINDS, default="random", help="kind of training batches")
    _add_batches(add)
    add("--rows", type=int, default=32, help="sources in a batch of generate()")
    add("--beams", type=int, default=4, help="beams of generate(); 1 is greedy")
    _add_generation(add)
    add("--repeats", type=int, default=3, help="processes per system; the median is printed")
    add("--memory-of", "--memory_of", nargs=3, help=argparse.SUPPRESS)


def _add_translator(commands: Any) -> None:
    text = "compare Translator with CTranslate2 alone"
    add = _add_command(commands, "translator", text, run_translator, WAYS)
    add("--model", metavar="DIR", help="a saved model; None: random weights")
    add("--input", metavar="FILE", help="source texts, one per line; None: random words")
    add("--texts", type=int, default=512, help="number of texts")
    add("--compute-types", "--compute_types", nargs="+", default=["float32", "int8"], help="types")
    add("--beams", nargs="+", type=int, default=[1, 4], help="numbers of beams; 1 is greedy")
    _add_generation(add)
    add("--repeats", type=int, default=5, help="timed turns; the median is printed")


if __name__ == "__main__":
    main()
