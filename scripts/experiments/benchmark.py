"""Measures speed and memory of this package, compared with other systems that are installed.

`train` measures training steps and their peak memory, and `generate` measures `generate()`. `gpu`
measures training and generation on one GPU, in at most 6 minutes. The systems take turns, and
ratios compare within a turn; see `benchmark_models.py` for the systems. Every run measures the
limits of the machine too. `--busy 1` keeps one other process busy. torch reads variables such as
GOMP_SPINCOUNT when it is imported: set them before.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from subprocess import Popen
from typing import Any

import torch
from benchmark_generation import format_generation, make_generator, measure_generation
from benchmark_gpu import SYSTEMS_OF_GPU, measure_gpu
from benchmark_models import GENERATING, TRAINED, is_installed
from benchmark_reports import format_machine, measure_machine, write_json
from benchmark_training import (
    KINDS,
    format_training,
    measure_memory_of_each,
    measure_step_memory,
    measure_training,
)

Results = Iterator[tuple[dict[str, Any], str]]


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the measurements of the command line, prints them and writes the file asked for."""
    argv = sys.argv[1:] if argv is None else argv
    options = parse_options(argv)
    torch.set_num_threads(options.threads)
    if options.memory_of:
        print(measure_step_memory(options.memory_of, options.kinds[0], options))
        return
    if options.systems is None:
        options.systems = [name for name in options.all_systems if is_installed(name)]
        if missing := [name for name in options.all_systems if not is_installed(name)]:
            print(f"not installed, and not measured: {', '.join(missing)}", file=sys.stderr)
    machine = measure_machine(options)
    print(format_machine(machine), flush=True)
    results = []
    others = [Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    try:
        for result, report in options.run(options, argv, machine):
            print(report, flush=True)
            results.append(result)
            if options.json:  # after each setting, so that a run that is stopped leaves what it has
                write_json(options.json, options, machine, results)
    finally:
        for process in others:
            process.kill()


def run_train(options: argparse.Namespace, argv: Sequence[str], machine: dict[str, Any]) -> Results:
    """Measures training steps; yields a result and its report for each kind of batches."""
    for kind in options.kinds:
        memory = {} if options.no_memory else measure_memory_of_each(kind, options, argv)
        result = measure_training(kind, options, machine)
        if memory:
            result["memory_mib"] = memory
        yield result, format_training(result)


def run_generate(
    options: argparse.Namespace, argv: Sequence[str], machine: dict[str, Any]
) -> Results:
    """Measures `generate()`; yields a result and its report for each setting."""
    with ExitStack() as stack:
        systems = {name: make_generator(name, options, stack) for name in options.systems}
        for rows, beams in itertools.product(options.rows, options.beams):
            result = measure_generation(systems, rows, beams, options, machine)
            yield result, format_generation(result)


def run_gpu(options: argparse.Namespace, argv: Sequence[str], machine: dict[str, Any]) -> Results:
    """Measures training and generation on one GPU; yields a result and its report for each case."""
    yield from measure_gpu(options, machine)


# The command line -------------------------------------------------------------------------------


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Reads the command line; `run` of the options is the function of the subcommand."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")

    add = _add_command(commands, "train", "compare training steps", run_train, TRAINED)
    add("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of batches")
    add("--tokens", type=int, default=1024, help="approximate target tokens per batch")
    add("--batches", type=int, default=5, help="batches of each kind")
    add("--dropout", type=float, default=0.1, help="dropout rate")
    add("--bf16", action="store_true", help="train under autocast to bfloat16")
    add("--repeats", type=int, default=3, help="timed turns; the median is printed")
    add("--device", default="cpu", help="cpu, cuda, ...")
    add("--no-memory", "--no_memory", action="store_true", help="measure only the speed")
    add("--memory-of", "--memory_of", choices=TRAINED, help=argparse.SUPPRESS)

    add = _add_command(commands, "generate", "compare generate()", run_generate, GENERATING)
    add("--rows", nargs="+", type=int, default=[1, 32], help="numbers of sources in a batch")
    add("--beams", nargs="+", type=int, default=[1, 4], help="numbers of beams; 1 is greedy")
    add("--new-tokens", "--new_tokens", type=int, default=64, help="tokens to generate for a row")
    add("--source-tokens", "--source_tokens", type=int, default=25, help="longest source")
    add("--bf16", action="store_true", help="weights in bfloat16; for systems of PyTorch")
    add("--repeats", type=int, default=9, help="timed turns; the median is printed")
    add("--device", default="cpu", help="cpu, cuda, ...")

    add = _add_command(commands, "gpu", "measure one GPU", run_gpu, SYSTEMS_OF_GPU)
    add("--seconds", type=float, default=330, help="time after which no case starts")
    add("--matrix-size", "--matrix_size", type=int, default=8192, help="of the peak's product")
    add("--widths", nargs="+", type=int, default=[512, 256], help="widths of trained models")
    sizes = [4096, 16384, 1024, 65536]
    add("--target-tokens", "--target_tokens", nargs="+", type=int, default=sizes, help="a batch")
    add("--kinds", nargs="+", choices=KINDS, default=["random", "bucketed"], help="of batches")
    add("--batches", type=int, default=3, help="batches of each kind")
    add("--rows", nargs="+", type=int, default=[256, 32, 1], help="numbers of sources in a batch")
    add("--beams", nargs="+", type=int, default=[4, 1], help="numbers of beams; 1 is greedy")
    add("--new-tokens", "--new_tokens", type=int, default=64, help="tokens to generate for a row")
    add("--source-tokens", "--source_tokens", type=int, default=25, help="longest source")
    add("--repeats", type=int, default=2, help="timed turns of generation")
    add("--device", default="cuda", help="cpu, cuda, ...")

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
    add("--busy", type=int, default=0, help="other processes that compute at the same time")
    add("--seed", type=int, default=0, help="seed of the inputs and the weights")
    add("--json", metavar="FILE", help="write options, machine and results to a file")
    return add


if __name__ == "__main__":
    main()
