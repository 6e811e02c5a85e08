"""`translate --corpus`: shards, workers that die, restarts, and what is refused."""

import gzip
import os
import signal
from functools import partial

import pytest
from distributed import Client, LocalCluster
from programs import command

from vanilla_transformer.command_line import UsageError
from vanilla_transformer.commands import corpus_shards
from vanilla_transformer.commands import translate as subcommand
from vanilla_transformer.commands.program import parse, run_subcommand
from vanilla_transformer.files.directory_lock import locked_directory

translate = partial(run_subcommand, "translate")
LINES = ["a dog sees a cat .", "", "a bird finds a child .", "a cat\tsees a dog .", "a child ."]


@pytest.fixture
def make_cluster():
    """Makes a cluster of processes, or of a thread of this process, which begins at once."""
    settings = {"threads_per_worker": 1, "memory_limit": None, "dashboard_address": None}
    return partial(LocalCluster, silence_logs=50, **settings)


@pytest.fixture
def words(trained, tmp_path):
    """The words of a command that makes 5 shards of two files, besides an empty one."""
    text = "".join(f"{line}\n" for line in LINES).encode()
    files = [tmp_path / name for name in ("a.en", "none.en", "b.en.gz")]
    contents = text, b"", gzip.compress(text[: text.index(b"a cat\t")])
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    corpus = ["--corpus", *map(str, files), "--output", str(tmp_path / "out")]
    return [str(trained), *corpus, "--tsv", "--shard-lines", "2"]


def shards(folder):
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("0*"))}


def spoil(action, word):
    """On a worker: the next translation of a line with this word raises, or kills the worker."""
    whole = corpus_shards.print_outputs

    def spoilt(translator, options, lines, *rest, **place):
        if any(word in line for line in lines):
            corpus_shards.print_outputs = whole
            if action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("this line is bad")
        whole(translator, options, lines, *rest, **place)

    corpus_shards.print_outputs = spoilt


def test_shards_are_those_of_one_process(words, trained, tmp_path, capsys):
    done = command("translate", *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == f"{tmp_path / 'out'}: 8 lines in 5 shards."
    translate([str(trained), "--tsv", "--", *LINES, *LINES[:3]])
    found = shards(tmp_path / "out")
    assert "".join(found.values()) == capsys.readouterr().out
    assert {name: text.count("\n") for name, text in found.items()} == {
        f"0000{number}.tsv": count for number, count in enumerate((2, 2, 1, 2, 1))
    }


@pytest.mark.slow
def test_workers_that_fail_or_die_cost_no_other_shard(words, make_cluster, tmp_path, capsys):
    with make_cluster(n_workers=2) as cluster, Client(cluster) as client:
        words += ["--scheduler", cluster.scheduler_address]
        client.run(spoil, "fail", "\t")
        with pytest.raises(OSError, match=r"1 of 5 .*: 00001\.tsv \(.*a\.en, lines 3-4\): .* bad"):
            translate(words)
        assert sorted(shards(tmp_path / "out")) == [f"0000{n}.tsv" for n in (0, 2, 3, 4)]
        client.run(spoil, "kill", "\t")
        cluster.scheduler.allowed_failures = 0
        with pytest.raises(OSError, match=r"00001\.tsv .* its worker was ended"):
            translate(words)
        cluster.scheduler.allowed_failures = 3
        before = shards(tmp_path / "out")
        # The shard of a worker that dies is translated by another one.
        for n in (3, 4):
            (tmp_path / "out" / f"0000{n}.tsv").unlink()
        times = {n: (tmp_path / "out" / f"0000{n}.tsv").stat().st_mtime_ns for n in (0, 2)}
        client.wait_for_workers(2)
        client.run(spoil, "kill", "bird")
        capsys.readouterr()
        workers = set(client.run(os.getpid).values())
        translate(words)
        assert workers - set(client.run(os.getpid).values())
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"{tmp_path / 'out'}: 8 lines in 5 shards."
    assert not any("has failed" in line for line in said)
    after = shards(tmp_path / "out")
    assert {**after, **before} == after
    assert len(after) == 5
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {*after, "manifest.json"}
    for n, time in times.items():
        assert (tmp_path / "out" / f"0000{n}.tsv").stat().st_mtime_ns == time


def test_a_memory_is_read_by_workers_alone_before_the_first_shard(words, make_cluster, tmp_path):
    memory = tmp_path / "bad.tsv"
    memory.write_text("a source without a tab\n")
    words += ["--memory", str(memory)]
    named = ["model_cards/program-texts", *words[1:], "--target-language", "de"]
    subcommand.check(parse("translate", named))
    with make_cluster(n_workers=1, processes=False) as cluster:
        words += ["--scheduler", cluster.scheduler_address]
        with pytest.raises(ValueError, match=r"bad\.tsv, line 1"):
            translate(words)
        assert not shards(tmp_path / "out")
        for answer in ("eine erste", "eine andere"):  # in the same worker
            memory.write_text(f"a child .\t{answer}\n")
            translate([*words, "--output", str(tmp_path / answer)])
            assert any(answer in content for content in shards(tmp_path / answer).values())
        translate(words)  # the mended command
    assert len(shards(tmp_path / "out")) == 5


def test_a_directory_is_made_from_one_corpus_and_model(words, make_cluster, tmp_path):
    with make_cluster(n_workers=1, processes=False) as cluster:
        words += ["--scheduler", cluster.scheduler_address]
        narrow = ["--output", str(tmp_path / "new"), "--num-beams", "2", "--n-best", "3"]
        with pytest.raises(UsageError, match="the search keeps 2"):
            translate([*words, *narrow])
        translate(words)
    before = shards(tmp_path / "out")
    with locked_directory(tmp_path / "out", True), pytest.raises(ValueError, match="Another run"):
        translate(words)
    with pytest.raises(ValueError, match="another num_beams"):
        translate([*words, "--num-beams", "3"])
    with pytest.raises(ValueError, match="another shard_lines"):
        translate([*words, "--shard-lines", "3"])
    with pytest.raises(ValueError, match="another model"):
        translate(["model_cards/pronounce", *words[1:]])
    with (tmp_path / "a.en").open("a") as file:
        file.write("a dog .\n")
    with pytest.raises(ValueError, match="another corpus"):
        translate(words)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "00000.tsv").touch()
    with pytest.raises(ValueError, match="not empty"):
        translate([*words, "--output", str(tmp_path / "other")])
    assert shards(tmp_path / "out") == before
