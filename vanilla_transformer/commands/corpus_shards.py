"""A corpus that is translated shard by shard, by workers of Dask: processes here, or of a cluster.

A shard is a range of lines of one file. A worker gets its lines and writes its outputs, in a file
that exists whole or not at all. So nothing depends on how many workers there are, nor on when one
of them dies: Dask gives its shard to another one.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from io import StringIO
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import dask
from distributed import Client, KilledWorker, LocalCluster, as_completed
from transformers import set_seed

from vanilla_transformer.commands.files import MANIFEST, FileLines
from vanilla_transformer.commands.program import describe_error
from vanilla_transformer.commands.translation import (
    Options,
    load_memories,
    load_translator,
    print_outputs,
    read_memory,
)
from vanilla_transformer.files.atomic_files import write_atomic
from vanilla_transformer.files.directory_lock import locked_directory
from vanilla_transformer.files.file_contents import read_object
from vanilla_transformer.files.model_directory import model_files
from vanilla_transformer.progress import Progress, hide_bars_of_loading, print_message

_SHARDS_AHEAD = 2  # whose lines are read, for each worker: one that is computed, and the next
_FAILURES_IN_A_ROW = 20  # after so many, the next shard is not expected to do better
_QUIET = {  # the program itself reports what has failed
    "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "critical",
}


@dataclass(frozen=True)
class Shard:
    """Some neighbouring lines of a file, and the file of their outputs."""

    path: Path
    file: str
    first: int
    count: int

    def __str__(self) -> str:
        return f"{self.path.name} ({self.file}, lines {self.first + 1}-{self.first + self.count})"


def translate_corpus(options: Options) -> None:
    """Translates the shards that the directory lacks.

    Raises:
        ValueError: If the directory was made from something else, or another program writes to it.
        OSError: If shards have failed. The error names them; the others are complete.
    """
    output = options.files.output
    assert output is not None  # `Options` has checked it
    folder = Path(output).resolve()  # workers have another working directory
    identity, shards = _identity(options), _cut_files(options, folder)
    with _shard_directory(folder, identity):
        missing = [shard for shard in shards if not shard.path.exists()]
        total = sum(shard.count for shard in shards)
        done = total - sum(shard.count for shard in missing)
        failed: dict[Shard, str] = {}
        if missing:
            with Progress(total, "lines", done=done) as progress:
                for shard, problem in _carry_out(options, identity, missing):
                    if problem:
                        failed[shard] = problem
                        print_message(f"{shard} has failed: {problem}")
                    else:
                        done += shard.count
                        progress.update(done)
    if failed:
        named = "; ".join(f"{shard}: {problem}" for shard, problem in failed.items())
        raise OSError(
            f"{len(failed)} of {len(shards)} shards have failed. The same command makes these "
            f"alone: {named}"
        )
    print_message(f"{output}: {total:,} lines in {len(shards)} shards.")


def _identity(options: Options) -> dict[str, Any]:
    """Returns what decides the outputs of a corpus."""
    files, corpus, computation = options.files, options.corpus, asdict(options.computation)
    del computation["batch_tokens"], computation["device"]
    models = (options.model, *options.computation.ensemble_with)
    return {
        **{name: getattr(files, name) for name in ("json", "tsv", "quality", "alignment")},
        **asdict(options.request),
        **computation,
        "model": list(map(_file_identity, models)),
        "glossary": options.request.glossary and _file_identity(options.request.glossary),
        "memory": list(map(_file_identity, options.request.memory)),
        "corpus": list(map(_file_identity, corpus.files)),
        "shard_lines": corpus.shard_lines,
    }


def _file_identity(path: str) -> list[Any]:
    """Returns path, size and time of a file or of those of a model, or a name on the Hub."""
    entry = Path(path)
    if not entry.exists():
        return [path]
    files = model_files(entry) if entry.is_dir() else [entry]
    return [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]


@contextmanager
def _shard_directory(folder: Path, identity: Mapping[str, Any]) -> Iterator[None]:
    """Makes a directory of shards, or goes on with one; keeps other programs out of it."""
    with locked_directory(folder, is_main=True):
        folder.mkdir(parents=True, exist_ok=True)
        manifest, wanted = folder / MANIFEST, json.loads(json.dumps(identity))
        if manifest.exists() and any(folder.glob("[0-9]*")):  # or else no shard was made
            known = read_object(manifest)
            names = sorted(n for n in {*known, *wanted} if known.get(n) != wanted.get(n))
            if names:
                raise ValueError(
                    f"{str(folder)!r} was made with another {', '.join(names)}: give the same "
                    "files and options, or delete it to begin again."
                )
        else:
            write_atomic(manifest, json.dumps(wanted, indent=1) + "\n")
        try:
            yield
        finally:
            for path in folder.glob("*.partial"):  # of a process that was killed
                path.unlink(missing_ok=True)


def _cut_files(options: Options, folder: Path) -> list[Shard]:
    size = options.corpus.shard_lines
    suffix = "jsonl" if options.files.json else "tsv" if options.files.tsv else "txt"
    shards: list[Shard] = []
    for file in options.corpus.files:
        lines = len(FileLines(file))
        for first in range(0, lines, size):
            path = folder / f"{len(shards):05}.{suffix}"
            shards.append(Shard(path, file, first, min(size, lines - first)))
    return shards


def _with_lines(shards: Sequence[Shard]) -> Iterator[tuple[Shard, list[str]]]:
    """Yields shards with their lines; each file is read once, as a stream."""
    for file, group in groupby(shards, lambda shard: shard.file):
        lines, position = iter(FileLines(file)), 0
        for shard in group:
            start = shard.first - position
            yield shard, list(islice(lines, start, start + shard.count))
            position = shard.first + shard.count


def _carry_out(
    options: Options, identity: Mapping[str, Any], shards: Sequence[Shard]
) -> Iterator[tuple[Shard, str]]:
    """Yields each shard that is written, with "", and each that has failed, with the reason."""
    with _connected_client(options) as client:
        # One worker finds what is wrong with all shards, and exports the model if that is needed.
        work = _Work(repr(identity), _with_absolute_paths(options))
        engine = client.submit(_name_of_engine, work, pure=False).result()
        sources, running, failures = _with_lines(shards), as_completed(), 0
        shard_of: dict[str, Shard] = {}
        while failures < _FAILURES_IN_A_ROW:
            free = max(1, len(client.nthreads())) * _SHARDS_AHEAD - len(shard_of)
            for shard, lines in islice(sources, max(0, free)):
                future = client.submit(_translate_shard, work, engine, shard, lines, pure=False)
                shard_of[future.key] = shard
                running.add(future)
            if not shard_of:
                return
            future = next(running)
            shard, problem = shard_of.pop(future.key), ""
            if future.status == "error":
                error = future.exception()
                problem = describe_error(error)
                if isinstance(error, KilledWorker):
                    problem = "its worker was ended again and again; perhaps its memory was full"
            failures = failures + 1 if problem else 0
            yield shard, problem
        raise OSError(
            f"{failures} shards one after another have failed, the last one is {shard}: {problem}. "
            "What is complete is kept."
        )


@dataclass(frozen=True)
class _Work:
    """What the workers need for all shards."""

    identity: str  # tells options and the files of models apart: others are another model
    options: Options = field(compare=False)  # with absolute paths


def _with_absolute_paths(options: Options) -> Options:
    models = (options.model, *options.computation.ensemble_with)
    model, *others = (str(Path(path).resolve()) if Path(path).exists() else path for path in models)
    computation = replace(options.computation, ensemble_with=others)
    return replace(options, model=model, computation=computation)


@contextmanager
def _connected_client(options: Options) -> Iterator[Any]:
    """Connects with the scheduler of a cluster, or starts workers on this machine."""
    dask.config.set(_QUIET)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if (scheduler := options.corpus.scheduler) is not None:
        where = "scheduler_file" if os.path.isfile(scheduler) else "address"
        with Client(**{where: scheduler}) as client:
            if not client.nthreads():
                print_message(f"{scheduler} has no workers yet: waiting for the first one.")
            yield client
        return
    cluster = LocalCluster(
        n_workers=options.corpus.num_proc,
        threads_per_worker=1,
        memory_limit=None,
        dashboard_address=None,
    )
    with cluster, Client(cluster) as client:
        yield client


# On a worker --------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _load_for_worker(work: _Work) -> Any:
    """Loads translator and memory of a worker; the next shards, and only theirs, use them too."""
    hide_bars_of_loading()
    read_memory.cache_clear()  # the files of another corpus may have changed
    translator = load_translator(work.options)
    load_memories(work.options, translator)
    return translator


def _name_of_engine(work: _Work) -> str:
    return str(_load_for_worker(work).engine.name)


def _translate_shard(work: _Work, engine: str, shard: Shard, lines: list[str]) -> None:
    if shard.path.exists():  # by a worker that died before it could say so
        return
    options, translator = work.options, _load_for_worker(work)
    if (name := translator.engine.name) != engine:
        raise ValueError(
            f"This worker has the engine {name!r}, and the first one {engine!r}: install the same "
            "packages, or give --engine."
        )
    set_seed(options.computation.seed + int(shard.path.stem))
    stream = StringIO()
    print_outputs(translator, options, lines, stream, file=shard.file, first=shard.first)
    write_atomic(shard.path, stream.getvalue())
