"""A distillation from the command to the report, with a tiny teacher."""

import json
import re
from itertools import product
from math import ceil
from pathlib import Path

import pytest
from endpoints import endpoint
from made_up_language import NOUNS, VERBS

from vanilla_transformer import Translator
from vanilla_transformer.command_line import UsageError
from vanilla_transformer.commands.distil import read_texts
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.distil import distillation, journal
from vanilla_transformer.distil.options import DistilOptions
from vanilla_transformer.distil.report import describe_report, judge_student, make_report
from vanilla_transformer.distil.teachers import Answer, Teacher
from vanilla_transformer.run.comparison import MetricComparison, PairTest

SENTENCES = [f"a {one} {verb} a {two} ." for one, verb, two in product(NOUNS, VERBS, NOUNS)]
LANGUAGES = ["--source-language", "en", "--target-language", "de"]


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal, "PAUSES", (0.01,))
    monkeypatch.setattr(distillation, "LAYERS", {"encoder_layers": 1, "decoder_layers": 1})
    Path("texts.en").write_text("".join(f"{text}\n" for text in SENTENCES), encoding="utf-8")
    return tmp_path


def run(teacher, *words, out="out"):
    words = [teacher, "texts.en", "--output-dir", out, *words]
    run_subcommand("distil", [str(word) for word in words])


def report():
    return json.loads(Path("out/report.json").read_text(encoding="utf-8"))


def test_a_student_of_a_saved_model(texts, trained, corpus, capsys):
    sides = ((corpus / f"test.{side}").read_text().splitlines() for side in ("en", "de"))
    rows = "".join(f"{source}\t{target}\n" for source, target in zip(*sides, strict=True))
    again = f"{rows.partition(chr(9))[0]} \tHund mag Katze .\n"  # another reference
    Path("test.tsv").write_text(rows + again, encoding="utf-8")
    words = [trained, *LANGUAGES, "--test", "test.tsv", "--held-out", 12, "--size", "0.5MB"]
    run(*words)
    told = capsys.readouterr().out
    scores = report()["comparison"]["scores"]["chrf"]
    assert scores["models"].keys() == {"student", "teacher", "copying"}
    assert scores["pairs"][0]["models"] == ["student", "teacher"]
    assert scores["models"]["copying"]["chrf"] < scores["models"]["student"]["chrf"]
    assert report()["references"] == "by people"
    assert report()["comparison"]["references"][0][-1] == "Hund mag Katze ."
    assert report()["bytes in 8 bits"] < 500_000
    export = ["out/model", "ct2", "--to", "ctranslate2", "--quantization", "int8"]
    run_subcommand("export", export)
    assert sum(path.stat().st_size for path in Path("ct2").iterdir()) < 500_000
    assert {*report()["seconds"]} == {
        f"{who} {how}" for who in ("student", "teacher") for how in ("one by one", "together")
    }
    assert "The model to use: out/model" in told
    assert told.partition("The model to use")[0].strip() in Path("out/model/README.md").read_text()
    assert isinstance(Translator.from_pretrained("out/model").translate(SENTENCES[0]), str)
    test = {line.partition("\t")[0] for line in rows.splitlines()}
    learnt = Path("out/labels/train.tsv").read_text(encoding="utf-8").splitlines()
    assert not test & {line.partition("\t")[0] for line in learnt}
    model = Path("out/model/model.safetensors").stat().st_mtime_ns
    run(*words)  # nothing is left to do
    assert Path("out/model/model.safetensors").stat().st_mtime_ns == model


def test_a_task_without_languages_and_with_a_program(texts, capsys):
    program = "command: python3 -c 'import sys; [print(line.strip()[::-1]) for line in sys.stdin]'"
    run(program, "--held-out", 10, "--minutes", 0.4, "--metrics", "mismatch", "cer")
    told = capsys.readouterr().out
    assert report()["references"] == "answers of the teacher"
    assert {*report()["comparison"]["scores"]} == {"mismatch", "cer"}
    assert "references: answers of the teacher" in told
    row = Path("out/labels/train.tsv").read_text(encoding="utf-8").splitlines()[0]
    assert row.split("\t")[0][::-1] == row.split("\t")[1]
    with pytest.raises(ValueError, match="another teacher"):
        run("command: cat")
    weights, words = (
        Path("out/model/model.safetensors"),
        ["--minutes", 0.4, "--metrics", "mismatch"],
    )
    made = weights.stat().st_mtime_ns
    run(program, "--held-out", 10, *words, "cer", out=texts / "out")  # the same by another name
    for other in (["--held-out", 10, "--seed", 1, *words, "cer"], ["--held-out", 9, *words, "cer"]):
        with pytest.raises(ValueError, match="trained on other labels or with other options"):
            run(program, *other)
    assert weights.stat().st_mtime_ns == made


def test_a_dry_run_asks_a_few_and_tells_the_cost(texts, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    Path("prompt.txt").write_text("Answer {text}")
    with endpoint() as (address, asked):
        chat = [f"{address}/v1", "--teacher-model", "m", "--prompt", "prompt.txt"]
        run(*chat, "--held-out", 10, "--price", 1000, 2000, "--dry-run")
    told = capsys.readouterr().out
    assert asked.total() == 20
    assert told.count("\tANSWER A ") == 20
    count = int(re.search(r"(\d+) texts:", told)[1])
    assert f"{7 * count:,} + {3 * count:,} tokens, cost {0.013 * count:.2f}" in told
    assert not Path("out/model").exists()
    files = "".join(path.read_text() for path in Path("out").rglob("*.json*"))
    assert "sk-secret" not in files + told


class Slow(Teacher):
    """Takes 10 seconds to start, and fails on the first text of each call."""

    chunk, start = 100, 10.0

    def answer(self, texts):
        yield [(n, Answer(text if n else None, "odd")) for n, text in enumerate(texts)]


@pytest.mark.parametrize("seconds", [10.0, 30.0, 9.0])
def test_a_dry_run_multiplies_neither_pauses_nor_the_start_of_a_teacher(
    texts, monkeypatch, seconds
):
    monkeypatch.setattr(journal, "sleep", lambda _: pytest.fail("it pauses"))
    monkeypatch.setattr(distillation, "monotonic", iter([0.0, seconds]).__next__)
    options = DistilOptions(teacher="command: cat", texts=["texts.en"], output_dir="out")
    *answers, told = distillation.try_out(options, Slow(), SENTENCES)
    assert answers[0].endswith("\t(failed: odd)")
    count = int(told.partition(" ")[0])
    expected = count / 20 * max(0, seconds - 10) + 10 * ceil(count / 100)
    assert f"texts: {expected / 60:.1f} minutes." in told


def test_a_teacher_that_fails_too_often_ends_it_and_keeps_what_it_said(texts):
    program = (
        "command: python3 -c 'import sys; lines = sys.stdin.read().splitlines(); "
        '"dog" in str(lines) and sys.exit("no dogs"); [print(line[::-1]) for line in lines]\''
    )
    with pytest.raises(ValueError, match=r"status 1 no dogs\. That is too many: \d+ of \d+"):
        run(program, "--held-out", 10)
    failed = Path("out/labels/failed.tsv").read_text().splitlines()
    assert len(failed) > 5
    assert all("dog" in line and line.endswith("\tstatus 1 no dogs") for line in failed)
    kept = Path("out/labels/train.tsv").read_text() + Path("out/labels/validation.tsv").read_text()
    assert kept.count("\n") + Path("out/labels/test.tsv").read_text().count("\n") > 10


@pytest.mark.parametrize("mine", ["notes.txt", "labels/train.tsv", "report.json"])
def test_no_file_of_a_person_is_replaced(texts, mine):
    Path("out", mine).parent.mkdir(parents=True)
    Path("out", mine).write_text("mine")
    with pytest.raises(ValueError, match="choose another directory"):
        run("command: cat", "--held-out", 10)
    assert Path("out", mine).read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/x", "--teacher-model", "m"], "language model at an address"),
        (["http://host/v1"], "name one with `teacher_model`"),
        (["http://host/v1", "--teacher-model", "m"], "needs `source_language`"),
        (["http://u:sk-1@host/translate"], "holds a key"),
    ],
)
def test_options_that_do_not_fit_are_refused(texts, words, message):
    with pytest.raises(UsageError, match=message) as error:
        run(*words)
    assert "sk-1" not in str(error.value)


def test_texts_come_from_lines_tables_and_documents(texts):
    Path("a.tsv").write_text("one\teins\ntwo\tzwei\n")
    Path("b.csv").write_text('"three, four",x\n')
    Path("c.json").write_text('{"key": "five"}')
    Path("d.po").write_text('msgid "six"\nmsgstr ""\n\nmsgid "seven"\nmsgstr "sieben"\n')
    Path("e.html").write_text("<p>eight <b>nine</b></p>")
    Path("f.csv").write_text('"ten\neleven",x\n"Größe\r\n\r\nzwölf"\r\n')
    files = ["a.tsv", "b.csv", "c.json", "d.po", "e.html", "f.csv"]
    found = ["one", "two", "three, four", "five", "six", "seven", "eight nine"]
    found += ["ten\neleven", "Größe\n\nzwölf"]
    assert [*dict.fromkeys(read_texts(files))] == found


@pytest.mark.parametrize(
    ("given", "files"),
    [
        ("a[1].txt", ["a[1].txt"]),
        ("a[2].txt", ["a2.txt"]),
        ("a?.txt", ["a1.txt", "a2.txt"]),
        ("none*", ["none*"]),
    ],
)
def test_a_path_that_exists_is_no_pattern(texts, given, files):
    for name in ("a[1].txt", "a1.txt", "a2.txt"):
        Path(name).touch()
    options = DistilOptions(teacher="runs/x", texts=[given, "texts.en"], output_dir="out")
    assert options.files == [*files, "texts.en"]


@pytest.mark.parametrize("num_failed", [0, 1, 5])
def test_a_text_without_an_answer_lowers_no_score(trained, corpus, tmp_path, num_failed):
    (tmp_path / "model").symlink_to(trained)
    sides = ((corpus / f"test.{side}").read_text().splitlines() for side in ("en", "de"))
    pairs = dict(zip(*sides, strict=True))
    made = journal.Journal(tmp_path / "answers.jsonl", Slow(), False, ())
    made.answers = dict([*pairs.items()][num_failed:])
    options = DistilOptions(
        teacher="runs/x", texts=[], output_dir=str(tmp_path), test="test.tsv", metrics=["chrf"]
    )
    references = {source: [target] for source, target in pairs.items()}
    report = make_report(options, made, references, {}, {})
    assert report.comparison.sources == [*made.answers]
    assert report.comparison.scores["chrf"].models["teacher"]["chrf"] == 100
    assert report.unanswered == num_failed
    assert (f"without {num_failed} " in next(describe_report(report))) == (num_failed > 0)


@pytest.mark.parametrize(
    ("metric", "scores", "is_better", "is_near"),
    [
        ("cer", (None, 10.0, 50.0), False, False),  # an infinite rate
        ("cer", (10.0, None, 50.0), True, True),
        ("cer", (130.0, 130.0, 170.0), False, True),
        ("cer", (12.0, 10.0, 50.0), True, True),
        ("chrf", (12.0, 10.0, 50.0), False, True),
        ("chrf", (70.0, 80.0, 50.0), True, False),
    ],
)
def test_the_verdict_knows_which_scores_are_good(metric, scores, is_better, is_near):
    models = dict(zip(("student", "teacher", "copying"), scores, strict=True))
    rows = {name: {metric: score} for name, score in models.items()}
    test = PairTest(["student", "copying"], 1.0, p_value=0.001)
    told = " ".join(judge_student({metric: MetricComparison(rows, [test], "", "")}))
    assert ("no better than copying" not in told) == is_better
    assert ("far below its teacher" not in told) == is_near
