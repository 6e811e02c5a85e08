"""What `from vanilla_transformer import ...` offers, and what `help` says about it."""

import inspect
import re
import subprocess
import sys

import pytest

import vanilla_transformer

MODELS = [
    getattr(vanilla_transformer, name)
    for name in vanilla_transformer.__all__
    if hasattr(getattr(vanilla_transformer, name), "forward") and name.startswith("Vanilla")
]


def test_completion_shows_public_names_only():
    names = [name for name in dir(vanilla_transformer) if not name.startswith("__")]
    assert names == sorted(vanilla_transformer.__all__)
    assert "Translator" in names


def test_every_public_name_is_loaded_when_it_is_used():
    """In a new process, because this one has imported all rooms."""
    code = (
        "import sys, vanilla_transformer as package\n"
        "assert 'vanilla_transformer.inference' not in sys.modules\n"
        "assert package.Translator.__name__ == 'Translator'\n"
        "print(*(getattr(package, name).__name__ for name in package.__all__))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == vanilla_transformer.__all__, done.stderr


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Transformator"):
        vanilla_transformer.Transformator  # noqa: B018 - the error is what is tested


def arguments_of(model):
    """The arguments that the help of a forward documents, and those that it has."""
    text = inspect.getdoc(model.forward).partition("Args:")[2].partition("Returns:")[0]
    entries = re.findall(r"^    (\S.*?):", text, re.MULTILINE)
    documented = [name.lstrip("*") for names in entries for name in names.split(", ")]
    return documented, list(inspect.signature(model.forward).parameters)[1:]


def test_the_help_of_a_forward_documents_each_argument():
    """Once, in the translation model, which the help of the others names."""
    whole, named = arguments_of(vanilla_transformer.VanillaTransformerForConditionalGeneration)
    assert whole == named
    for model in MODELS:
        documented, named = arguments_of(model)
        assert {*documented} <= {*named} <= {*documented, *whole}
