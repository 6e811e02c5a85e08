"""The command that started a run, for its model card."""

import os
from collections.abc import Sequence
from pathlib import Path

_LAUNCHERS = ("accelerate", "accelerate-launch", "torchrun")
_LAUNCHER_MODULES = (
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "torch.distributed.run",
    "torch.distributed.launch",
)


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
    rest = list(words)
    if rest and Path(rest[0]).name.startswith("python"):
        del rest[0]
        while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
            del rest[0]  # an option of Python, such as -u
    if rest and (name := Path(rest[0]).name) in _LAUNCHERS:
        return (name, *rest[1:])
    if rest[:1] == ["-m"] and rest[1:2] and rest[1] in _LAUNCHER_MODULES:
        return ("python", *rest)
    return None


def _parent_words() -> list[str]:
    """Reads the command line of the parent process; empty where the system does not show it."""
    try:
        text = Path(f"/proc/{os.getppid()}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.split("\0")[:-1]
