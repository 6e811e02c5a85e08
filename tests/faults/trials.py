"""Trials of runs that are killed and of files that are damaged, with seeds that repeat them.

A trial starts runs of a tiny model in processes of their own, does harm to them, and restarts them
as a cluster does: with the same command, until they end. What they leave is then compared with what
an undisturbed run leaves.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import forks
from damage import damaged
from small import SIZES, start_two_processes

PROGRAM = Path(__file__).with_name("doomed_run.py")
STEPS = {"max_steps": 10, "logging_steps": 1, "save_strategy": "steps", "save_steps": 3}
STEPS |= {"max_tokens": 200, "learning_rate": 0.01, "dropout": 0.3, "seed": 3, "warmup_steps": 2}
STEPS |= {"choose_defaults": False}
SEARCH = {"generation_max_length": 8, "generation_num_beams": 1}
SCORED = {"eval_strategy": "steps", "eval_steps": 3, "metrics": "chrf"}
WHOLE_AGAIN = "ended like the undisturbed run"
VARIANTS = {
    "everything that draws": {
        "tokenizer_kind": "bpe",
        "vocab_size": 90,
        "bpe_dropout": 0.2,
        "rdrop_alpha": 5.0,
        "ema_decay": 0.9,
        "gradient_accumulation_steps": 2,
    },
    "the best of few checkpoints": {
        "tokenizer_kind": "char",
        "save_total_limit": 1,
        "load_best_model_at_end": True,
        "early_stopping_patience": 5,
        **SCORED,
    },
    "a mean of checkpoints": {
        "tokenizer_kind": "word",
        "average_last": 2,
        "lr_scheduler_type": "reduce_lr_on_plateau",
        **SCORED,
    },
}
EDITED = ("config.json", "generation_config.json")
TIMES = ("runtime", "per_second")
ZONES = ("UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Kiritimati")


def write_corpus(folder):
    """Writes pairs that are enough for some steps."""
    chance, words = random.Random(0), [f"word{index}" for index in range(12)]
    for name, count in (("train", 60), ("validation", 6)):
        pairs = [chance.choices(words, k=chance.randint(1, 6)) for _ in range(count)]
        for side, order in (("source", 1), ("target", -1)):
            lines = "".join(f"{' '.join(pair[::order])}\n" for pair in pairs)
            (folder / f"{name}.{side}").write_text(lines, encoding="utf-8")


def arguments(corpus, folder, variant, **changes):
    files = {
        f"{split}_{side}": corpus / f"{split}.{side}"
        for split in ("train", "validation")
        for side in ("source", "target")
    }
    options = {**files, "output_dir": folder, "resume_from_checkpoint": True}
    options |= {**SIZES, **STEPS, **SEARCH, **VARIANTS[variant], **changes}
    return [text for name, value in options.items() for text in (f"--{name}", str(value))]


def without_times(value):
    """Figures and logs less what depends on the machine."""
    if isinstance(value, dict):
        kept = {k: without_times(v) for k, v in value.items() if not k.endswith(TIMES)}
        return {k: v for k, v in kept.items() if k != "TrainingRecord"}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def what_a_run_leaves(folder):
    """Everything in the directory of a run that must not depend on kills, by file."""
    left = {path.name: None for path in folder.iterdir()}
    for name in ("model.safetensors", "tokenizer.json", "config.json", "generation_config.json"):
        left[name] = (folder / name).read_bytes()
    for name in ("all_results.json", "trainer_state.json"):
        left[name] = without_times(json.loads((folder / name).read_text(encoding="utf-8")))
    left["trainer_state.json"].pop("best_model_checkpoint")  # a path
    return left


def differences(folder, expected):
    """The files of a run that are not as those of the undisturbed run."""
    left = what_a_run_leaves(folder)
    return [name for name in left | expected if left.get(name) != expected.get(name)]


class Trial:
    """Runs of one corpus in a folder, the harm done to them, and what became of them."""

    def __init__(self, folder):
        self.folder, self.seen = folder, Counter()
        write_corpus(folder)
        self._expected, self._seconds = {}, {}
        forks.server("package")

    def expected(self, variant, world=1):
        """What an undisturbed run leaves; it also tells how long a run takes."""
        key = (variant, world)
        if key not in self._expected:
            whole = self.whole(variant, world)
            begun = time.monotonic()
            processes = self.start(variant, whole, world)
            codes = [process.wait() for process in processes]
            self._seconds[key] = time.monotonic() - begun
            assert codes == [0] * world, processes[0].stderr[-3000:]
            self._expected[key] = what_a_run_leaves(whole)
        return self._expected[key]

    def whole(self, variant, world=1):
        return self.folder / f"whole-{variant}-{world}".replace(" ", "-")

    def start(self, variant, output, world=1, doom="", clock=0, zone="UTC", **changes):
        """Starts a run in one or two processes."""
        argv = arguments(self.folder, output, variant, **changes)
        common = {"DOOM": doom, "CLOCK": str(clock), "TZ": zone}
        if world == 1:
            return [forks.start(PROGRAM, *argv, environment=common)]
        return start_two_processes(PROGRAM, *argv, **common)

    def kill_and_restart(self, seed, variant=None, world=None, kills=None):
        """Kills a run a few times and lets it end; returns the number of kills.

        Raises:
            AssertionError: If it ends in another way than the undisturbed run.
        """
        chance = random.Random(seed)
        variant = variant or chance.choice(sorted(VARIANTS))
        world = world or (2 if chance.random() < 0.15 else 1)
        wanted = kills or chance.choice((1, 1, 2, 3))
        expected = self.expected(variant, world)
        output, happened = self.folder / f"run-{seed}", []
        for _ in range(wanted):
            how = self.kill_once(chance, variant, output, world)
            happened.append(how)
            if how == "ended before the kill":
                break
            self.disturb_times(chance, output)
        processes = self.start(variant, output, world, clock=chance.choice((0, -7200, 1e7)))
        codes = [process.wait() for process in processes]
        said = processes[0].stderr
        assert codes == [0] * world, f"seed {seed}, {variant}, {happened}: {said[-3000:]}"
        different = differences(output, expected)
        assert not different, f"seed {seed}, {variant}, {happened}: {different} differ"
        shutil.rmtree(output)
        self.seen.update(happened)
        self.seen["runs that ended like the undisturbed one"] += 1
        return sum(how != "ended before the kill" for how in happened)

    def kill_once(self, chance, variant, output, world):
        kind = chance.choice(("time", "time", "event", "write"))
        doom = {
            "time": "",
            "event": f"event:{chance.randint(1, 50)}",
            "write": f"write:{chance.randint(1, 30_000)}",
        }[kind]
        zone = chance.choice(ZONES)
        running = self.start(variant, output, world, doom, chance.choice((0, 3600, -86400)), zone)
        if kind == "time":
            time.sleep(chance.uniform(0, 1.05) * self._seconds[variant, world])
            chance.choice(running).send_signal(9)
        return self.see_the_end(running, kind)

    def see_the_end(self, running, kind):
        """Waits until a process has ended and ends the others, as a launcher does."""
        while all(process.poll() is None for process in running):
            time.sleep(0.005)
        time.sleep(0.1 if len(running) > 1 else 0)
        for process in running:
            process.send_signal(9)
        codes = [process.wait() for process in running]
        if not any(codes):
            return "ended before the kill"
        assert any(code < 0 for code in codes), running[0].stderr[-3000:]
        words = {"time": "at a random time", "event": "as it changed a file"}
        where = words.get(kind, "in the middle of a write")
        return f"killed {where}{', two processes' if len(running) > 1 else ''}"

    def disturb_times(self, chance, output):
        """Gives files the times that a moved clock or a copy gives them."""
        for path in sorted(output.rglob("trainer_state.json")) if output.exists() else ():
            if chance.random() < 0.5:
                moment = time.time() + chance.uniform(-1e6, 1e6)
                os.utime(path, (moment, moment))

    def kill_a_new_interpreter(self, seed):
        """As `kill_and_restart`, once, but Python itself starts anew."""
        chance, variant = random.Random(seed), sorted(VARIANTS)[seed % len(VARIANTS)]
        expected, output = self.expected(variant), self.folder / f"new-{seed}"
        argv = [sys.executable, str(PROGRAM), *arguments(self.folder, output, variant)]
        environment = {**forks.server("package").environment, "TZ": chance.choice(ZONES)}
        process = subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(3, 8))
        process.kill()
        ended = process.wait() == 0
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        assert what_a_run_leaves(output) == expected, f"seed {seed}"
        shutil.rmtree(output)
        how = "ended before the kill" if ended else "killed in an interpreter of its own"
        self.seen.update([how, "runs that ended like the undisturbed one"])
        return int(not ended)

    def damage_and_restart(self, seed):
        """Returns what happened after one file was damaged.

        Raises:
            AssertionError: If the run ends in another way than the undisturbed run without an error
                that names the file or its checkpoint.
        """
        chance, variant = random.Random(seed), sorted(VARIANTS)[seed % len(VARIANTS)]
        expected, output = self.expected(variant), self.folder / f"damaged-{seed}"
        shutil.copytree(self.whole(variant), output)
        is_finished = chance.random() < 0.3
        if not is_finished:  # as after a kill in the middle
            for path in output.iterdir():
                if path.is_file():
                    path.unlink()
            if len(list(output.glob("checkpoint-*"))) > 1:
                shutil.rmtree(output / "checkpoint-10", ignore_errors=True)
        files = sorted(path for path in output.rglob("*") if path.is_file())
        assert files, variant
        path = chance.choice(files)
        bad, kind = damaged(path.read_bytes(), seed)
        path.write_bytes(bad)
        happened = self.restart(variant, output, path, expected, f"seed {seed}, {kind}")
        shutil.rmtree(output)
        self.seen[f"{'finished' if is_finished else 'killed'} run, {happened}"] += 1
        self.seen["damaged: " + kind] += 1
        return happened

    def restart(self, variant, output, path, expected, what):
        """Runs the same command again; returns what came of it."""
        file = path.relative_to(output)
        done = self.start(variant, output)[0]
        if done.wait() == 0:
            # A file that a finished run keeps, and that its user may have edited, stays as it is.
            kept = {file.name} & set(EDITED)
            different = set(differences(output, expected)) - kept
            assert not different, f"{what} of {file}, {variant}: {different} differ"
            if "passed over" in done.stderr:
                return "an earlier checkpoint was taken, " + WHOLE_AGAIN
            return WHOLE_AGAIN
        last = done.stderr.strip().splitlines()[-1]
        assert "--debug ..." not in last, f"{what} of {file}: {last}"
        assert "error: " in last, f"{what} of {file}: {last}"
        named = (path.name in last, file.parts[0] in last)
        assert any(named), f"{what} of {file}: {last}"
        return "an error named the file or its checkpoint"
