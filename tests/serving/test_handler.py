"""The handler of Inference Endpoints, called as an endpoint calls it."""

import importlib.util
import json
import shutil

import forks
import pytest

LINE, OUTPUT = "a dog sees a cat .", "Hund sieht Katze ."


@pytest.fixture(scope="module")
def repository(trained, tmp_path_factory):
    """A saved model with the handler, as it is uploaded."""
    folder = tmp_path_factory.mktemp("repository") / "model"
    shutil.copytree(trained, folder, ignore=shutil.ignore_patterns("checkpoint-*"))
    done = forks.run("vanilla_transformer.serving.handler", folder)
    assert done.stdout.splitlines() == [f"{folder}/handler.py", f"{folder}/requirements.txt"]
    return folder


@pytest.fixture(scope="module")
def handler(repository):
    """The handler, loaded from the file that stands beside the model."""
    found = importlib.util.spec_from_file_location("handler", repository / "handler.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.EndpointHandler(str(repository))


def test_it_answers_texts_and_lists(handler):
    assert handler({"inputs": LINE}) == [{"generated_text": OUTPUT}]
    several = handler({"inputs": [LINE, "a bird finds a boat ."]})
    assert several == [[{"generated_text": OUTPUT}], [{"generated_text": "Vogel findet Boot ."}]]
    assert handler({"inputs": []}) == []
    parameters = {"num_beams": 3, "num_return_sequences": 2, "return_scores": True}
    first, second = handler({"inputs": LINE, "parameters": parameters})
    assert first["generated_text"] == OUTPUT
    assert first["score"] > second["score"]


def test_wrong_requests_are_named(handler):
    for data in ({}, {"inputs": 3}, {"inputs": [LINE, None]}):
        with pytest.raises(ValueError, match="`inputs` must be a text or a list of texts"):
            handler(data)
    with pytest.raises(ValueError, match="`parameters` must be an object"):
        handler({"inputs": LINE, "parameters": [1]})
    with pytest.raises(ValueError, match="num_bems"):
        handler({"inputs": LINE, "parameters": {"num_bems": 2}})


def test_it_is_written_beside_models_only_and_replaces_nothing(repository, tmp_path):
    again = forks.run("vanilla_transformer.serving.handler", repository)
    assert again.returncode == 0
    done = forks.run("vanilla_transformer.serving.handler", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "holds no config.json" in done.stderr
    (tmp_path / "config.json").touch()
    (tmp_path / "handler.py").write_text("mine", encoding="utf-8")
    done = forks.run("vanilla_transformer.serving.handler", tmp_path)
    assert "exists: rename it" in done.stderr
    assert not (tmp_path / "requirements.txt").exists()


PROGRAM = """
import importlib.util
found = importlib.util.spec_from_file_location("handler", sys.argv[1] + "/handler.py")
module = importlib.util.module_from_spec(found)
found.loader.exec_module(module)
assert "vanilla_transformer" not in sys.modules
print(json.dumps(module.EndpointHandler(sys.argv[1])({"inputs": "a dog sees a cat ."})))
"""


@pytest.mark.slow
def test_it_needs_no_code_of_this_package(repository, load_as_a_stranger, tmp_path):
    found = load_as_a_stranger(repository, tmp_path / "again", [], program=PROGRAM)
    assert found == [{"generated_text": OUTPUT}], json.dumps(found)
