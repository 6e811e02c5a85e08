"""Runs a program as Windows would, as far as Linux can tell: `windows.py FOLDER PROGRAM ARGUMENTS`.

What only POSIX has is missing for the modules of the package. Below FOLDER, a file that is open or
mapped cannot be deleted or renamed, nothing is renamed over an existing file, links cannot be made,
names hold no character that Windows forbids, and a file that is read as text names its encoding.
Processes are spawned, standard output is in cp1252.
"""

import builtins
import errno
import os
import runpy
import signal
import socket
import sys
import time
import types
import warnings
from importlib import import_module
from pathlib import Path

POSIX_MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "posix")
POSIX_NAMES = {
    os: (
        *("chown", "chroot", "fchmod", "fchown", "fork", "forkpty", "getegid", "geteuid", "getgid"),
        *("getgroups", "getloadavg", "getpgid", "getpriority", "getsid", "getuid", "killpg"),
        *("lchown", "mkfifo", "mknod", "nice", "openpty", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW"),
        *("O_NONBLOCK", "O_SYNC", "O_TMPFILE", "posix_fadvise", "posix_fallocate", "pread"),
        *("pwrite", "register_at_fork", "sched_getaffinity", "sched_setaffinity", "sendfile"),
        *("setpgid", "setsid", "statvfs", "sync", "sysconf", "uname", "wait", "WNOHANG"),
    ),
    signal: (
        *("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGTSTP"),
        *("SIGUSR1", "SIGUSR2", "alarm", "pause", "pthread_kill", "pthread_sigmask", "setitimer"),
        "sigwait",
    ),
    time: ("clock_gettime", "CLOCK_MONOTONIC", "tzset"),
    socket: ("AF_UNIX", "SO_REUSEPORT"),
}
FORBIDDEN = set('<>:"|?*')
RESERVED = {"con", "prn", "aux", "nul"} | {f"{x}{n}" for x in ("com", "lpt") for n in range(1, 10)}
PACKAGE = "vanilla_transformer"


class OnWindows(types.ModuleType):
    """A module without the names that only POSIX has."""

    def __init__(self, module, names):
        super().__init__(module.__name__)
        self.__dict__["_hidden"] = (module, frozenset(names))

    def __getattr__(self, name):
        module, names = self.__dict__["_hidden"]
        if name in names:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r} on Windows")
        return getattr(module, name)


def hide_posix():
    """Hides modules and names from the modules of the package, and from nothing else."""
    hidden = {one.__name__: OnWindows(one, names) for one, names in POSIX_NAMES.items()}
    whole = builtins.__import__

    def import_here(name, globals=None, *rest, **options):
        if str((globals or {}).get("__name__", "")).partition(".")[0] == PACKAGE:
            if name in POSIX_MODULES:
                raise ModuleNotFoundError(f"No module named {name!r} on Windows", name=name)
            if name in hidden:
                return hidden[name]
        return whole(name, globals, *rest, **options)

    builtins.__import__ = import_here


def is_in_use(path):
    """Whether this process has a file open or mapped that is, or lies in, a path."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    used = {line.split(" ", 5)[-1].strip() for line in maps.splitlines()}
    for number in os.listdir("/proc/self/fd"):
        try:
            used.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # the descriptor of the listing itself
    path = os.path.realpath(path)
    return any(one == path or one.startswith(f"{path}/") for one in used)


def refuse(path, reason):
    raise PermissionError(errno.EACCES, f"{reason} on Windows", str(path))


def watch(folder):
    """Refuses below a folder what the file system of Windows refuses."""
    root, renames, inside = str(folder), os.rename, False

    def lies_in(path):
        return isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(root)

    def check(event, values):
        if event == "open" or event == "os.mkdir":
            if lies_in(values[0]):
                name = os.path.basename(os.fspath(values[0]))
                if FORBIDDEN & set(name) or name.partition(".")[0].lower() in RESERVED:
                    refuse(values[0], "no such name")
        elif event in ("os.remove", "os.rename", "os.rmdir"):
            for path in values[: 2 if event == "os.rename" else 1]:
                if lies_in(path) and is_in_use(path):
                    refuse(path, "the file is in use")
        elif event in ("os.symlink", "os.link") and lies_in(values[1]):
            refuse(values[1], "links need a privilege")

    def hook(event, values):
        nonlocal inside
        if not inside and event.startswith(("open", "os.")):
            inside = True
            try:
                check(event, values)
            finally:
                inside = False

    def rename(source, target, **options):
        if lies_in(target) and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "rename does not replace on Windows", str(target))
        renames(source, target, **options)

    os.rename = rename
    sys.addaudithook(hook)


def pretend(folder):
    """Makes this process behave as on Windows."""
    warnings.filterwarnings("error", category=EncodingWarning, module=PACKAGE)
    for library in ("multiprocessing", "multiprocess"):  # the latter is that of datasets
        import_module(library).set_start_method("spawn")
    hide_posix()
    watch(folder)
    sys.stdout.reconfigure(encoding="cp1252")


if __name__ == "__main__":
    if not sys.flags.warn_default_encoding:
        raise SystemExit("Start it with `python -X warn_default_encoding`.")
    pretend(Path(sys.argv[1]).resolve())
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
