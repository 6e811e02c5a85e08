"""The command that started a run, for its model card."""

import os
from collections.abc import Sequence
from pathlib import Path

_LAUNCHERS = ("accelerate", "torchrun")
_LAUNCHER_MODULES = ("accelerate.commands.launch", "torch.distributed.run")


def run_command(argv: Sequence[str]) -> tuple[str, ...]:
    """Returns the command that repeats a run.

    Args:
        argv: Arguments of the run, as given.

    Returns:
        The words of the launcher's command (`accelerate launch ...`) where one started this
        process; otherwise those of `vanilla-transformer train` with the arguments.
    """
    return launcher_command(_parent_words()) or ("vanilla-transformer", "train", *argv)


def launcher_command(words: Sequence[str]) -> tuple[str, ...] | None:
    """Returns the command of a launcher as it was typed.

    Args:
        words: Command line of a process.

    Returns:
        The words from the launcher's name on; None if the process is not a launcher.
    """
    for place, word in enumerate(words[:2]):
        if (name := Path(word).name) in _LAUNCHERS:
            return (name, *words[place + 1 :])
    if len(words) > 2 and words[1] == "-m" and words[2] in _LAUNCHER_MODULES:
        return ("python", *words[1:])
    return None


def _parent_words() -> list[str]:
    """Reads the command line of the parent process; empty where the system does not show it."""
    try:
        text = Path(f"/proc/{os.getppid()}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.split("\0")[:-1]
