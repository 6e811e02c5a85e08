"""What a run prints: a log that one can read, and with `--verbose` the rest."""

import logging
import re

from made_up_language import SIZES, arguments, main
from programs import REPOSITORY, command
from several_processes import environment_of_a_program, start_two_processes

from vanilla_transformer import Translator
from vanilla_transformer.commands import program
from vanilla_transformer.run import pace
from vanilla_transformer.run.arguments import parse_arguments
from vanilla_transformer.run.training_run import run

EPOCHS = 10
SMALL = {**SIZES, "num_train_epochs": EPOCHS, "generation_max_length": 16, "bf16": False}
OF_TRANSFORMERS = ("GenerationConfig", "Instantaneous batch", "missing keys", "have been ignored")


def four_options(corpus, folder, *splits, **changes):
    """The command line of README, with a tiny model so that the test is quick."""
    argv = arguments(corpus, folder, *splits)
    names = {f"--{split}_{side}" for split in splits for side in ("source", "target")}
    pairs = zip(argv[::2], argv[1::2], strict=True)
    kept = [word for pair in pairs if pair[0] in {*names, "--output_dir"} for word in pair]
    return [*kept, *(word for name, value in changes.items() for word in (f"--{name}", str(value)))]


def test_the_log_tells_the_plan_and_the_examples_of_each_evaluation(corpus, tmp_path):
    """The output of the run goes to a file."""
    gap, folder = tmp_path / "train.en", tmp_path / "out"
    lines = (corpus / "train.en").read_text(encoding="utf-8").splitlines()
    gap.write_text("\n".join(["", *lines[1:]]) + "\n", encoding="utf-8")
    options = {**SMALL, "train_source": gap, "show_examples": 2}
    done = command("train", *four_options(corpus, folder, "train", "validation", **options))
    assert done.returncode == 0, done.stderr[-3000:]
    text = done.stdout + done.stderr
    assert text.count("\n") <= 35, text
    assert not [words for words in OF_TRANSFORMERS if words in text]
    assert "\r" not in text
    assert "skipped 1 of 400 pairs" in text
    assert "399 training pairs on a CPU: vocab_size" in text
    assert text.count("\nEpoch ") == EPOCHS
    translator = Translator.from_pretrained(folder)
    sources = (corpus / "val.en").read_text(encoding="utf-8").splitlines()[:2]
    first, *shown = re.findall('"(.*)" → "(.*)"', text)
    targets = (corpus / "train.de").read_text(encoding="utf-8").splitlines()
    assert first == (lines[1], targets[1])
    assert [source for source, _ in shown] == sources * EPOCHS
    assert all(output for _, output in shown[-2:])  # it has learned to say something
    assert translator.tokenizer.do_lower_case
    assert translator.translate("A Dog  SEES a\u00a0cat . ") == (
        translator.translate("a dog  sees a\u00a0cat .") + " "
    )


def test_a_dry_run_tells_steps_size_and_time_and_keeps_nothing(
    corpus, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(pace, "_SECONDS", 0.0)
    argv = four_options(corpus, tmp_path / "out", "train", "validation", **SMALL)
    assert program.main(["train", *argv, "--dry-run"]) == 0
    printed = capsys.readouterr().err
    steps = re.search(r"^All: ([\d,]+) steps of [\d.]+ seconds", printed, re.MULTILINE)[1]
    told = re.findall(r"^--minutes (\d+): [\d,]+ steps .* layers of width", printed, re.MULTILINE)
    assert told == ["10", "30", "120"]
    assert "400 training pairs on a CPU: " in printed
    assert not (tmp_path / "out").exists()
    assert program.main(["train", *argv]) == 0
    assert f", step {steps} of {steps}: " in capsys.readouterr().err


def test_what_makes_a_training_or_its_scores_worthless_is_told(corpus, tmp_path, capsys):
    known = [tmp_path / "known.en", tmp_path / "known.de"]
    for path in known:
        lines = (corpus / f"train{path.suffix}").read_text().splitlines(keepends=True)
        path.write_text("".join(lines[5:25]))
    others = {"validation_source": known[0], "validation_target": known[1], "max_steps": 3}
    argv = arguments(corpus, tmp_path / "out", **others)
    main([*argv, "--warmup_steps", "500"])
    printed = capsys.readouterr().err
    assert "All validation pairs are training pairs" in printed
    assert "All test pairs" not in printed
    assert "warm-up of 500 steps does not end in a training of 3" in printed
    argv = arguments(corpus, tmp_path / "right", max_steps=3, warmup_steps=0.5)
    main(argv)
    printed = capsys.readouterr().err
    assert "training pairs:" not in printed
    assert "warm-up" not in printed


def test_what_is_not_scored_and_what_is_not_learnt_is_told(corpus, tmp_path, capsys):
    main(arguments(corpus, tmp_path / "out", "train", max_steps=2))
    assert "nothing is scored" in capsys.readouterr().err
    copies = {"validation_target": corpus / "val.en"}
    argv = arguments(corpus, tmp_path / "copies", "train", "validation", max_steps=2, **copies)
    main(argv)
    printed = capsys.readouterr().err
    assert "nothing is scored" not in printed
    assert "no better than the unchanged sources (chrF" in printed
    assert "100.0 of the sources" in printed


def test_python_only_warns(corpus, tmp_path, capsys, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("vanilla_transformer"), "handlers", [])
    caplog.set_level(logging.NOTSET, "vanilla_transformer")  # as in a new process
    argv = arguments(corpus, tmp_path / "quiet", "train", "validation", max_steps=2)
    run(parse_arguments(argv))
    assert "tokens/s" not in capsys.readouterr().err
    main(arguments(corpus, tmp_path / "told", "train", "validation", max_steps=2))
    assert "Saved in" in capsys.readouterr().err


def test_of_two_processes_only_the_main_one_prints(corpus, tmp_path):
    out = tmp_path / "out"
    argv = arguments(corpus, out, "train", "validation", max_steps=4, use_cpu=True)
    program = REPOSITORY / "scripts" / "train.py"
    environment = environment_of_a_program()
    running = start_two_processes(program, *argv, "--eval_strategy", "steps", **environment)
    assert [process.wait() for process in running] == [0, 0]
    assert "Saved in" in running[0].stderr
    assert running[0].stderr.count("Epoch ") == 1
    assert running[1].stdout + running[1].stderr == ""
    assert "eval_bleu" in (out / "all_results.json").read_text(encoding="utf-8")
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "2 CPU processes" in card
    assert "```bash\nvanilla-transformer train " in card


def test_a_larger_vocabulary_is_proposed_where_one_is_made(corpus, trained, tmp_path, capsys):
    lines = ["a 狗 sees a cat .", *["a dog sees a cat ."] * 15]
    (tmp_path / "val.en").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options = {"validation_source": tmp_path / "val.en", "max_steps": 1}
    for made, kind in ((True, {"tokenizer_kind": "bpe"}), (False, {"model_name_or_path": trained})):
        main(arguments(corpus, tmp_path / f"{made}", "train", "validation", **options, **kind))
        printed = capsys.readouterr().err.split("Characters that the vocabulary lacks")[1]
        assert ("`vocab_size`" in printed) == made
