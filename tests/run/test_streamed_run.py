"""Training data that are read and encoded while a model trains, and of which no copy is kept."""

import gzip
import json
import re
import shutil
from pathlib import Path

import pyarrow
import pytest
from datasets import Dataset
from hub_server import Hub, run
from small import train_in_two_processes
from toy import arguments

from vanilla_transformer.commands.program import main
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.disk_room import check_room_before_reading
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.data.streamed_pairs import stream_parallel_data
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.run.parsing import STREAMING_RULES, parse_arguments

LIMITS = {"max_source_length": 20, "max_target_length": 20}
SAVES = {"save_strategy": "steps", "eval_strategy": "no", "lr_scheduler_type": "constant"}
OPTIONS = {"streaming": True, "max_steps": 8, "save_steps": 4, **LIMITS, **SAVES}


def words(corpus, out, *splits, **changes):
    given = arguments(corpus, out, *splits, **{**OPTIONS, "stream_buffer": 90, **changes})
    at = given.index("--num_train_epochs")
    return given[:at] + given[at + 2 :]


def train(corpus, out, *splits, **changes):
    return main(["train", *words(corpus, out, *splits, **changes)])


def weights(out):
    return (out / "model.safetensors").read_bytes()


def pairs(corpus):
    sides = [(corpus / f"train.{end}").read_text().splitlines() for end in ("en", "de")]
    return list(zip(*sides, strict=True))


def test_a_killed_run_goes_on_as_one_that_was_not(corpus, tmp_path, capsys):
    data = corpus, tmp_path / "whole", "train", "validation"
    assert train(*data, max_steps=24) == 0  # more than an epoch
    said = capsys.readouterr().err
    assert "a stream of train pairs, 16 validation pairs; a vocabulary of" in said
    data = corpus, tmp_path / "parts", "train", "validation"
    assert train(*data, max_steps=12) == 0
    assert train(*data, max_steps=24, resume_from_checkpoint=True, dataloader_num_workers=1) == 0
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    figures = json.loads((tmp_path / "parts/all_results.json").read_text())
    assert figures["train_loss"] > 0 < figures["eval_chrf"]
    position = json.loads((tmp_path / "parts/checkpoint-24/stream_position_0.json").read_text())
    assert position["epoch"] > 0
    assert "training data changed" not in capsys.readouterr().err


def files(corpus, folder):
    """The same pairs in each way that can be streamed: the options that name them."""
    rows = [{"source": source, "target": target} for source, target in pairs(corpus)]
    (folder / "a.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs(corpus)))
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Dataset.from_list(rows).to_parquet(str(folder / "a.parquet"), batch_size=64)
    Dataset.from_list(rows).to_csv(str(folder / "a.csv"), index=False)
    for side, end in (("source", "en"), ("target", "de")):
        (folder / f"a.{end}.gz").write_bytes(gzip.compress((corpus / f"train.{end}").read_bytes()))
        with pyarrow.output_stream(str(folder / f"a.{end}.zst"), compression="zstd") as stream:
            stream.write("\n".join(row[side] for row in rows).encode())
    parts = folder / "hub"
    parts.mkdir()
    for number in range(4):
        translations = [
            json.dumps({"translation": {"en": a, "de": b}}) + "\n"
            for a, b in pairs(corpus)[number * 100 : number * 100 + 100]
        ]
        (parts / f"train-{number}.jsonl").write_text("".join(translations))
    (parts / "validation.jsonl").write_text("".join(translations[:9]))
    return [
        *({"train_file": str(folder / f"a.{end}")} for end in ("tsv", "jsonl", "parquet", "csv")),
        *(
            {"train_source": str(folder / f"a.en{end}"), "train_target": str(folder / f"a.de{end}")}
            for end in (".gz", ".zst")
        ),
        {"dataset_name": str(parts), "source_lang": "en", "target_lang": "de"},
    ]


def test_all_formats_give_the_same_pairs(corpus, tmp_path):
    learned = VanillaTransformerTokenizer.train(
        [one for one, _ in pairs(corpus)], [other for _, other in pairs(corpus)], kind="word"
    )
    expected = [
        {"input_ids": learned(one)["input_ids"], "labels": learned(text_target=other)["input_ids"]}
        for one, other in pairs(corpus)
    ]
    formats = files(corpus, tmp_path)
    whole = load_parallel_data(DataArguments(**formats[0]))["train"]
    assert list(zip(whole["source"], whole["target"], strict=True)) == pairs(corpus)
    for options in formats:
        stream, others = stream_parallel_data(DataArguments(**options))
        stream = stream.encoded_by(learned, None, None)
        assert list(stream) == expected, options
        assert len(stream.first_texts(80)) == 80
        shares = [list(stream.share_of(index, 2)) for index in range(2)]
        assert min(map(len, shares)) == 200
        assert sorted(map(str, shares[0] + shares[1])) == sorted(map(str, expected)), options
    assert len(others["validation"]) == 9
    some, _ = stream_parallel_data(DataArguments(**options, max_train_samples=120))
    some = some.encoded_by(learned, None, None)
    assert [len(list(some.share_of(index, 2))) for index in range(2)] == [60, 60]
    sample = stream.first_texts(40)["source"]  # ten of each file
    assert list(sample) == [pairs(corpus)[n * 100 + k][0] for n in range(4) for k in range(10)]


def entry(options, **more):
    """The same data as the only entry of `corpora`."""
    train = [options[name] for name in ("train_source", "train_target") if name in options]
    named = {"train": train or options.get("train_file"), "dataset": options.get("dataset_name")}
    given = {name: value for name, value in named.items() if value}
    return DataArguments(corpora=[json.dumps({**given, **more})])


def test_the_room_of_each_format_is_estimated(corpus, tmp_path, monkeypatch, caplog):
    """Their texts have the same size, whatever the files have; nothing is said of JSON."""
    free, used = [0], shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: used._replace(free=free[0]))
    exact = sum((len(one.encode()) + len(other.encode())) / 3 + 12 for one, other in pairs(corpus))
    *tables, parts = files(corpus, tmp_path)
    for options in (*tables, parts):
        sources = [DataArguments(**options)]
        sources += [entry(options, filters=False)] if options is not parts else []
        for args in sources:
            free[0] = 0.6 * exact
            with pytest.raises(OSError, match=r"about [\d.]+ KiB .* Nothing is written"):
                check_room_before_reading(tmp_path, args, is_new=True)
            free[0] = 1.1 * exact
            check_room_before_reading(tmp_path, args, is_new=True)
    free[0] = 0
    assert not caplog.records
    check_room_before_reading(tmp_path, sources[0], is_new=False)
    assert not caplog.records
    check_room_before_reading(tmp_path, entry(tables[0]), is_new=True)
    assert re.search(r"need up to about [\d.]+ KiB .* because filters may drop pairs", caplog.text)
    # A data set may tell its number of rows itself: here 100 times as many as its files have.
    told = "dataset_info:\n  splits:\n  - {name: train, num_examples: 40000, num_bytes: 1}\n"
    (tmp_path / "hub/README.md").write_text(f"---\n{told}---\n")
    free[0] = 60 * exact
    with pytest.raises(OSError, match=r"about \d{3}\.\d\d KiB .* Nothing is written"):
        check_room_before_reading(tmp_path, DataArguments(**parts), is_new=True)
    (tmp_path / "a.json").write_text(json.dumps([{"source": "a", "target": "b"}]))
    check_room_before_reading(tmp_path, DataArguments(train_file=str(tmp_path / "a.json")), True)


def test_what_is_dropped_or_cut_is_told_once(tmp_path, caplog):
    lines = [json.dumps({"source": a, "target": "t"}) for a in ("a b c d", "", "a", None, "a b c")]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    stream, _ = stream_parallel_data(DataArguments(train_file=str(tmp_path / "a.jsonl")))
    learned = VanillaTransformerTokenizer.train(["a b c d t"], kind="word")
    stream = stream.encoded_by(learned, 3, 3)
    found = [list(stream), list(stream)]
    assert [len(row["input_ids"]) for row in found[0]] == [3, 2, 3]
    assert found[0] == found[1]
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(": ")[2] for line in said] == [
        "pairs are skipped because a side is empty, here and later.",
        "the tokenizer truncates source texts to 3 tokens, here and later.",
    ]


def cut_gz(folder):
    path = folder / "cut.en.gz"
    path.write_bytes(gzip.compress("".join(f"a {n}\n" for n in range(9999)).encode())[:-900])
    (folder / "cut.de").write_text("b\n" * 9999)
    return {"train_source": path, "train_target": folder / "cut.de"}


def json_file(folder, *rows):
    (folder / "a.jsonl").write_text("\n".join(rows))
    return {"train_file": folder / "a.jsonl"}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (cut_gz, "cut.en.gz is not an intact gzip file"),
        (lambda folder: json_file(folder, "[1]"), "line 1 is not a JSON object: give one"),
        (lambda folder: json_file(folder, '{"a": 1}'), "has no column 'source'; its columns are"),
        (
            lambda folder: json_file(folder, '{"source": 1, "target": "b"}'),
            "column 'source' holds 1: it must hold text",
        ),
        (
            lambda folder: json_file(folder, '{"source": "", "target": "b"}'),
            "The train split has no pair with text on both sides: check",
        ),
        (lambda folder: {"train_file": folder / "no.tsv"}, "no.tsv does not exist"),
        (lambda folder: {"validation_file": folder / "a.csv"}, "give them, or leave it out"),
    ],
)
def test_bad_data_are_refused_with_one_sentence(tmp_path, capsys, make, sentence):
    (tmp_path / "a.csv").write_text("source,target\na,b\n")
    data = [str(word) for name, path in make(tmp_path).items() for word in (f"--{name}", path)]
    folder = Path(tmp_path, "out")
    given = [f"--{name}={value}" for name, value in OPTIONS.items()]
    assert main(["train", *data, *given, "--output_dir", str(folder)]) == 1
    said = capsys.readouterr().err
    assert sentence in said
    assert len([line for line in said.splitlines() if "is empty, here" not in line]) == 1
    assert not folder.exists()


def test_a_data_set_of_the_hub_trains_as_its_files_do(corpus, tmp_path):
    files(corpus, tmp_path)
    hub, parts = Hub(), tmp_path / "hub"
    hub.add_data_set("pairs", {path.name: path.read_bytes() for path in parts.iterdir()})

    def options(name, folder, steps):
        given = {"dataset_name": name, "source_lang": "en", "target_lang": "de"}
        of_files = words(corpus, tmp_path / folder, "train", max_steps=steps, save_steps=2, **given)
        return of_files[4:]  # without the two files

    assert main(["train", *options(parts, "local", 4)]) == 0
    calls = [["train", *options("somebody/pairs", "remote", 2)]]
    calls += [["train", *options("somebody/pairs", "remote", 4), "--resume_from_checkpoint=True"]]
    program = "import sys, vanilla_transformer.commands.program as program\n"
    program += f"sys.exit(any([program.main(words) for words in {calls}]))"
    run(hub, tmp_path / "home", "-c", program)
    hub.close()
    assert weights(tmp_path / "remote") == weights(tmp_path / "local")
    names = [request.rpartition("/")[2] for request in hub.requests if ".jsonl" in request]
    assert {f"train-{number}.jsonl" for number in range(4)} <= set(names)


CORPUS = '{"train": "a.tsv"}'


REFUSED = [
    ({"max_steps": -1}, "`streaming` needs `max_steps`"),
    ({"num_train_epochs": 3}, "`num_train_epochs` 3.0 has no effect with `streaming`"),
    ({"eval_strategy": "epoch"}, "`streaming` knows no epochs"),
    ({"per_device_train_batch_size": 3}, "`streaming` makes batches by tokens"),
    ({"prepared": "data"}, "`prepared` 'data' and `streaming` exclude each other"),
    ({"num_proc": 1}, "`num_proc` 1 has no effect with `streaming`"),
    ({"corpora": CORPUS}, "`corpora` are filtered and mixed on the disk"),
    ({"bpe_dropout": 0.1}, "need the texts of all pairs"),
    ({"guided_alignment": "a.align"}, "`guided_alignment` 'a.align' is a file of links"),
    ({"do_train": False}, "`do_train` False leaves nothing to stream"),
]


def test_each_rule_is_broken_once():
    assert len(REFUSED) == len(STREAMING_RULES)


@pytest.mark.parametrize(("changes", "sentence"), REFUSED)
def test_what_a_stream_cannot_do_is_refused(tmp_path, changes, sentence):
    given = {"output_dir": tmp_path / "out", "streaming": True, "max_steps": 9, **changes}
    with pytest.raises(ValueError, match=sentence):
        parse_arguments([f"--{name}={value}" for name, value in given.items()])


def test_long_pairs_must_fit_into_a_batch(corpus, tmp_path, capsys):
    assert train(corpus, tmp_path / "out", "train", max_source_length=500) == 1
    assert "so each must fit into a batch: give `max_source_length`" in capsys.readouterr().err


def test_a_large_stream_chooses_large_sizes_and_saves_by_steps(tmp_path):
    given = {"streaming": "True", "max_steps": 9, "output_dir": tmp_path, "train_file": "a.tsv"}
    chosen = parse_arguments([f"--{name}={value}" for name, value in given.items()]).training
    assert chosen.save_strategy == "steps"


def test_two_processes_train_on_a_stream_and_go_on(corpus, tmp_path):
    def launch(folder, steps, *more):
        train_in_two_processes(*words(corpus, tmp_path / folder, "train", max_steps=steps), *more)
        return weights(tmp_path / folder)

    whole = launch("whole", 8)
    launch("parts", 4)
    assert launch("parts", 8, "--resume_from_checkpoint", "True") == whole
    saved = sorted((tmp_path / "parts/checkpoint-8").glob("stream_position_*"))
    assert len(saved) == 2
