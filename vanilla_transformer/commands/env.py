"""Prints versions, processor and extras, for a bug report."""

import os
import re
from collections.abc import Sequence
from importlib.metadata import distributions, requires
from importlib.util import find_spec
from platform import platform, python_version

from vanilla_transformer import __version__
from vanilla_transformer.command_line import PROGRAM, CommandParser
from vanilla_transformer.extras import EXTRAS


def parse(words: Sequence[str]) -> None:
    """Reads the options of the subcommand; there are none."""
    CommandParser("env", __doc__).parse_words(words)


def run(options: None) -> None:
    """Prints a line on each topic."""
    import torch
    from torch.utils import collect_env

    names = {re.split(r"[^\w.-]", line)[0] for line in requires(PROGRAM) or ()}
    installed = {package.name: package.version for package in distributions()}
    packages = [f"{name} {installed[name]}" for name in sorted(names & installed.keys())]
    processor = re.search(r"Model name: *(.+)", collect_env.get_cpu_info(collect_env.run) or "")
    extras = [extra for extra, modules in EXTRAS.items() if all(map(find_spec, modules))]
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    print(f"{PROGRAM} {__version__}, Python {python_version()}, {platform()}")
    print(
        f"processor: {processor[1] if processor else 'unknown'}, {os.cpu_count()} cores, "
        f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads of torch"
    )
    print(f"GPUs: {', '.join(gpus) or 'none'}")
    print(f"packages: {', '.join(packages)}")
    print(f"extras that are installed: {', '.join(extras) or 'none'}")
