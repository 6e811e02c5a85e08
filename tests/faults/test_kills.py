"""Killed runs, full disks and damaged files: nothing is lost, and nothing is wrong without a word.

The seeds are fixed. `pytest tests/faults --long` makes 200 kills, damages 200 files and fills 60
disks, and prints what happened.
"""

import random
from collections import Counter
from itertools import count

import pytest
from trials import VARIANTS, Trial, what_a_run_leaves

LONG = 200


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_killed_run_ends_like_an_undisturbed_one(trial, variant):
    seeds = range(100 * len(variant), 1000 * len(variant))
    assert next(filter(None, (trial.kill_and_restart(seed, variant, 1) for seed in seeds)))


def test_two_killed_processes_end_like_undisturbed_ones(trial):
    """Two kills come at a time, when a fast run may have ended, and one as it changes a file."""
    seeds = (1, 2, 4)
    kills = sum(trial.kill_and_restart(seed, "everything that draws", 2) for seed in seeds)
    assert kills


def test_a_restart_loop_comes_to_its_end(trial):
    """Each process is killed before it has saved more than a file or two."""
    variant = "the best of few checkpoints"
    kills = (trial.kill_and_restart(seed, variant, 1, kills=8) for seed in range(7, 17))
    assert any(count > 2 for count in kills)


def fill_the_disk(trial, seed):
    """Writes of more than some bytes fail; returns what the run said, and goes on without limit."""
    chance = random.Random(seed)
    variant, output = chance.choice(sorted(VARIANTS)), trial.folder / f"full-{seed}"
    expected, size = trial.expected(variant), chance.randint(1, 30_000)
    process = trial.start(variant, output, doom=f"full:{size}")[0]
    code, said = process.wait(), process.stderr.strip()
    done = trial.start(variant, output)[0]
    assert done.wait() == 0, f"seed {seed}: {done.stderr[-2000:]}"
    assert what_a_run_leaves(output) == expected, f"seed {seed}"
    if code == 0:
        return "no file was so large"
    # A progress bar may be drawn once more, after the error.
    last = next((line for line in reversed(said.splitlines()) if "error: " in line), said)
    assert code == 1, f"seed {seed}, {size} bytes: {last}"
    assert "--debug ..." not in last, f"seed {seed}, {size} bytes: {last}"
    assert "no space left" in last or "File too large" in last, f"seed {seed}, {size} bytes: {last}"
    return "a sentence named the file" if "no space left" in last else "another message"


def test_a_full_disk_is_named_and_loses_nothing(trial):
    seen = Counter(fill_the_disk(trial, seed) for seed in (1, 2))
    assert seen["a sentence named the file"]


def test_damaged_files_of_a_run_are_named_or_written_anew(trial):
    happened = {trial.damage_and_restart(seed) for seed in range(8)}
    assert len(happened) > 1


def show(capsys, title, counts):
    with capsys.disabled():
        print(f"\n{title}:", *(f"\n  {n} {what}" for what, n in counts.most_common()))


@pytest.mark.long
def test_many_kills(trial, capsys):
    trial.seen.clear()
    kills = sum(trial.kill_a_new_interpreter(seed) for seed in range(1, 11))
    seeds = count(10_001)
    while kills < LONG:
        kills += trial.kill_and_restart(next(seeds))
    show(capsys, f"{kills} kills", trial.seen)


@pytest.mark.long
def test_many_damaged_files(trial, capsys):
    trial.seen.clear()
    for seed in range(20_000, 20_000 + LONG):
        trial.damage_and_restart(seed)
    show(capsys, f"{LONG} files", trial.seen)


@pytest.mark.long
def test_many_full_disks(trial, capsys):
    seeds = range(30_000, 30_060)
    show(capsys, "60 full disks", Counter(fill_the_disk(trial, seed) for seed in seeds))
