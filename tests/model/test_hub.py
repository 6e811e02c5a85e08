"""What is pushed to the Hub: all that belongs to a model, no pickle file, and no token."""

import json
from concurrent.futures import Future
from fnmatch import fnmatch
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi, ModelCard, RepoUrl
from made_up_language import arguments, main
from programs import REPOSITORY
from tiny_training import model, stock
from transformers import pipeline

from vanilla_transformer.commands import program
from vanilla_transformer.training.callbacks import CompletePushes

TOKEN = "hf_of_the_test"
CODE = {path.name for path in (REPOSITORY / "vanilla_transformer/model").glob("*.py")}
CODE -= {"__init__.py"}
MODEL_CODE = CODE - {"tokenization_vanilla_transformer.py"}
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


class Hub(dict):
    """The commits of each repository: the files that it has after each of them."""

    is_out_of_order = False

    def create_repo(self, api, repo_id, **options):
        name = repo_id if "/" in repo_id else f"somebody/{repo_id}"
        self.setdefault(name, [{}])
        return RepoUrl(f"https://huggingface.co/{name}")

    def create_commit(self, api, repo_id, operations, **options):
        files = {one.path_in_repo: one for one in operations if isinstance(one, CommitOperationAdd)}
        contents = {path: Path(one.path_or_fileobj).read_bytes() for path, one in files.items()}
        self[repo_id].append(self[repo_id][-1] | contents)

    def upload_folder(self, api, repo_id, folder_path, ignore_patterns=(), **options):
        if self.is_out_of_order:
            raise OSError("The Hub is out of order.")
        rules = Path(folder_path, ".gitignore")  # the Hub respects it
        ignored = [*ignore_patterns, *(rules.read_text().split() if rules.exists() else [])]
        found = {}
        for path in filter(Path.is_file, Path(folder_path).rglob("*")):
            name = path.relative_to(folder_path).as_posix()
            if not any(fnmatch(name, rule) for rule in ignored):
                found[name] = path.read_bytes()
        self[repo_id].append(self[repo_id][-1] | found)
        done = Future()
        done.set_result(None)
        return done

    def files(self, name):
        return self[f"somebody/{name}"][-1]


@pytest.fixture(scope="module")
def hub():
    pushed = Hub()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("create_repo", "create_commit", "upload_folder"):
            method = getattr(pushed, name)
            patch.setattr(
                HfApi, name, lambda api, *args, call=method, **options: call(api, *args, **options)
            )
        yield pushed


PUSHED = {"num_train_epochs": 2, "save_strategy": "epoch", "hub_always_push": True,
          "push_to_hub": True, "hub_token": TOKEN}  # fmt: skip


@pytest.fixture(scope="module")
def run(hub, corpus, tmp_path_factory):
    """A run that pushes, in its directory."""
    folder = tmp_path_factory.mktemp("hub") / "run"
    card = {"source_language": "en", "target_language": "de", "dataset_label": "Toy pairs"}
    main(arguments(corpus, folder, **PUSHED, **card, license="mit"))
    return folder


def test_a_run_pushes_all_that_belongs_to_a_model_and_no_more(hub, run):
    files = hub.files("run")
    assert set(files) >= CODE | {"tokenizer.json", "config.json", "generation_config.json"}
    assert files["model.safetensors"] == (run / "model.safetensors").read_bytes()
    weighted = [files for files in hub["somebody/run"] if "model.safetensors" in files]
    assert len(weighted) >= 3
    for files in weighted:
        assert set(files) >= MODEL_CODE
        assert not {path for path in files if path.endswith(PICKLES) or "checkpoint" in path}
        assert not any(content.startswith((b"\x80", b"PK")) for content in files.values())
        assert not [path for path, content in files.items() if TOKEN.encode() in content]
    assert (run / "training_args.bin").is_file()
    for path in run.rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes(), path


def test_the_card_of_a_run_says_what_the_hub_shows(hub, run):
    card = ModelCard(hub.files("run")["README.md"].decode())
    scores = json.loads((run / "all_results.json").read_text())
    assert (card.data.license, card.data.language) == ("mit", ["en", "de"])
    assert (card.data.library_name, card.data.pipeline_tag) == ("transformers", "translation")
    found = {(r.dataset_split, r.metric_type): r.metric_value for r in card.data.eval_results}
    assert found["test", "bleu"] == round(scores["test_bleu"], 2)
    assert found["validation", "chrf"] == round(scores["eval_chrf"], 2)
    assert {r.dataset_name for r in card.data.eval_results} == {"Toy pairs"}
    assert 'path = "somebody/run"' in card.text
    assert "--hub_token" in card.text


def test_a_hub_that_is_out_of_order_loses_nothing(hub, corpus, tmp_path, capsys, monkeypatch):
    """If the last push fails, a resumed run makes it."""
    options = {**PUSHED, "num_train_epochs": 1, "hub_strategy": "end"}
    argv = ["train", *arguments(corpus, tmp_path / "flaky", **options)]
    with monkeypatch.context() as patch:
        patch.setattr(hub, "is_out_of_order", True)
        assert program.main(argv) == 1
    assert f"Saved in {str(tmp_path / 'flaky')!r}" in capsys.readouterr().err
    assert (tmp_path / "flaky" / "all_results.json").is_file()
    assert "model.safetensors" not in hub.files("flaky")
    assert program.main([*argv, "--resume_from_checkpoint", "True"]) == 0
    weights = (tmp_path / "flaky" / "model.safetensors").read_bytes()
    assert hub.files("flaky")["model.safetensors"] == weights


@pytest.mark.parametrize("kind", ["by-hand", "pipe", "stock"])
def test_code_and_tokenizer_are_there_after_a_second_push(hub, trained, tmp_path, kind):
    for _ in range(2 * (kind != "stock")):
        pipe = pipeline("seq2seq-generation", model=str(trained), device="cpu")
        for part in (pipe.tokenizer, pipe.model) if kind == "by-hand" else (pipe,):
            part.push_to_hub(f"somebody/{kind}")
    if kind == "stock":
        options = {"push_to_hub": True, "max_steps": 2, "save_steps": 1, "hub_always_push": True}
        trainer = stock(tmp_path / "stock", model(), **options)
        trainer.add_callback(CompletePushes())
        trainer.train()
        trainer.push_to_hub(language="en", license="mit", tasks="translation")
    for files in hub[f"somebody/{kind}"]:
        assert "config.json" not in files or set(files) >= MODEL_CODE
    files = hub.files(kind)
    assert set(files) >= CODE | {"tokenizer.json", "tokenizer_config.json", "model.safetensors"}
    assert not {path for path in files if path.endswith(PICKLES)}
