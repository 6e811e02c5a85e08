"""Writes files and directories that exist whole or not at all, never over files still needed."""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

LOCK = "_running.lock"
"""File in a directory that a run is writing to; names with _ are not pushed to the Hub."""

_CODE = sorted(path.name for path in (Path(__file__).parents[1] / "model").glob("*.py"))
_FILES = (
    *("config.json", "generation_config.json", "README.md", ".gitattributes", *_CODE, "*.pyc"),
    *("model.safetensors", "model-[0-9]*-of-[0-9]*.safetensors", "model.safetensors.index.json"),
    *("tokenizer.json", "target_tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json", "target_vocab.json"),
    *("vocab-src.json", "vocab-tgt.json", "vocab.txt", "merges.txt", "source.spm", "target.spm"),
    *("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "quality.json"),
    *("file_sizes.json", "trainer_state.json", "training_args.bin"),
    *(f"{name}_results.json" for name in ("all", "train", "eval", "test", "predict")),
    *("training_weights.safetensors", "scheduler.pt", "scaler.pt", "latest", "zero_to_fp32.py"),
    *("optimizer.pt", "optimizer.bin", "optimizer_[0-9]*.bin", "pytorch_model*.bin"),
    *("rng_state.pth", "rng_state_[0-9]*.pth", "__[0-9]*.distcp", ".metadata"),
    *("*mp_rank_[0-9]*_model_states.pt", "*mp_rank_[0-9]*_optim_states.pt"),
    *("model.bin", "source_vocabulary.json", "target_vocabulary.json", "shared_vocabulary.json"),
    *("encoder_model*.onnx*", "decoder_model*.onnx*"),
    *("index.html", "page.css", "page.js", "translator.js", "worker.js", "kept.js", "patterns.js"),
    *("site.json", "ort*.mjs", "ort*.wasm", "tokenizers*.mjs", "LICENSE-*.txt"),
    "ThirdPartyNotices.txt",
)
"""Names of the files of a saved model, of a run, of its checkpoints, and of an export."""

_FOLDERS = re.compile(r"checkpoint-\d+|runs|onnx|target_tokenizer|runtime|__pycache__")
_EVENTS = "events.out.tfevents.*"  # of TensorBoard

_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SIGNS_OF_A_FULL_DISK = (
    "no space left",
    "file too large",
    "disk quota exceeded",
    "inline_container",  # the file of torch in which its writer is
    "pytorchstreamwriter",
)


def write_atomic(path: Path, text: str) -> None:
    """Writes a text file; a process that is killed leaves the former file or the new one.

    The folder of the file must exist. Line ends are written as they are on every system.
    """
    with (
        explained_full_disk(path),
        replaced_file(path) as unfinished,
        unfinished.open("w", encoding="utf-8", newline="\n") as stream,
    ):
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def replaced_file(path: str | Path) -> Iterator[Path]:
    """Makes a file that replaces an older one, if there is one, when it is complete.

    Yields a path beside it, which does not exist yet. Nobody else uses its name, so that several
    processes may write the same file: the last one stays.
    """
    unfinished = Path(f"{path}.{token_hex(4)}.partial")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def replaced_directory(path: str | Path) -> Iterator[Path]:
    """Makes a directory that replaces an older one, if there is one, when it is complete.

    The content of an older one is deleted last: after an error it is as it was. The directory
    itself stays, because it may be a mount point or the working directory. Yields a path for the
    new directory, which does not exist yet.
    """
    target = Path(path).resolve()
    exists = target.is_dir()
    target.parent.mkdir(parents=True, exist_ok=True)
    # A mount point is another file system than its parent: no file can be renamed into it.
    with TemporaryDirectory(
        dir=target if exists else target.parent, prefix=f".{target.name}-"
    ) as unfinished:
        new, old = Path(unfinished, "new", target.name), Path(unfinished, "old")
        new.parent.mkdir()
        yield new
        if not exists:
            new.rename(target)
            return
        old.mkdir()
        kept = sorted(path for path in target.iterdir() if path.name != Path(unfinished).name)
        moves = [(path, old / path.name) for path in kept]
        moves += [(path, target / path.name) for path in sorted(new.iterdir())]
        done: list[tuple[Path, Path]] = []
        try:
            for source, goal in moves:
                source.rename(goal)
                done.append((source, goal))
        except BaseException:
            for source, goal in reversed(done):
                goal.rename(source)
            raise


def check_output_directory(
    path: str, overwrite: bool, read_from: Iterable[str | None] = ()
) -> None:
    """Checks that a model may be saved in a directory.

    Args:
        read_from: Files and directories that the new model is made from. None, and a path that does
            not exist, such as a name on the Hub, passes.
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"The output {path!r} is a file: give the name of a directory.")
    check_lies_elsewhere(read_from, folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if names := foreign_names(folder):
        raise ValueError(
            f"{path!r} holds {', '.join(map(repr, names[:3]))}, part of no model, run or "
            "export: choose another directory."
        )
    if not overwrite:
        raise ValueError(f"{path!r} is not empty: add --overwrite, or choose another directory.")


def check_lies_elsewhere(read_from: Iterable[str | None], folder: Path) -> None:
    """Checks that nothing that is read lies in a directory that is overwritten.

    None, and a path that does not exist, passes.
    """
    for source in read_from:
        if source and os.path.lexists(source) and _lies_in(Path(source), folder):
            raise ValueError(
                f"{source!r} is read, and lies in the output {str(folder)!r}: choose another "
                "directory."
            )


def foreign_names(folder: Path) -> list[str]:
    """Lists the names in a folder that are no part of a saved model, a run or an export, in order.

    Files of a model are known beside its config alone: another README.md is a person's.
    """
    beside_config = (folder / "config.json").is_file()
    return sorted(path.name for path in folder.iterdir() if not _is_ours(path, beside_config))


def _is_ours(path: Path, beside_config: bool) -> bool:
    if path.is_dir():
        files = [file for file in path.rglob("*") if not file.is_dir()]
        return bool(_FOLDERS.fullmatch(path.name)) and all(_is_ours(file, True) for file in files)
    names = (*_FILES, _EVENTS, LOCK) if beside_config else (_EVENTS, LOCK)
    return any(fnmatch(path.name, name) for name in names)


def _lies_in(path: Path, folder: Path) -> bool:
    """Returns whether a path, or the target of its link, is a folder or lies in it."""
    both = path.resolve(), Path(os.path.normpath(path.parent.resolve() / path.name))
    return any(each.is_relative_to(folder.resolve()) for each in both)


@contextmanager
def explained_full_disk(path: Path) -> Iterator[None]:
    """Names the file that could not be written whole; the writers of torch and safetensors do not.

    Args:
        path: The file; or the folder of the files, of which the newest is named.

    Raises:
        OSError: In place of the errors of the writers, if the disk is full or the size of a file
            is limited.
    """
    try:
        yield
    except Exception as error:
        if not _is_full_disk(error):
            raise
        name = path
        if path.is_dir():
            files = (file for file in path.iterdir() if file.is_file())
            name = max(files, key=lambda file: file.stat().st_mtime_ns, default=path)
            if type(error).__name__ == "SafetensorError":  # it deletes its file when it fails
                name = path / "model.safetensors"
        raise OSError(
            f"{str(name)!r} cannot be written whole: no space left on the disk, or a limit on the "
            "size of files. Earlier files are kept: make room, and go on from there."
        ) from error


def _is_full_disk(error: BaseException) -> bool:
    """Returns whether an error, or one behind it, comes from a full disk.

    A writer that fails again when it is closed hides the reason. Causes may form a circle.
    """
    seen, current = set[int](), error
    while id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, OSError):
            if current.errno in _FULL_DISK:
                return True
        elif any(sign in str(current).lower() for sign in _SIGNS_OF_A_FULL_DISK):
            return True
        current = current.__cause__ or current.__context__ or current
    return False
