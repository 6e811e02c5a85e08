"""What a model does not copy comes back, with tokenizers that are not fast too."""

import pytest
from converted_models import save_fsmt

from vanilla_transformer import Translator
from vanilla_transformer.interop.funnel import convert


@pytest.fixture(scope="module")
def fsmt(tmp_path_factory):
    pytest.importorskip("sacremoses")
    folder = tmp_path_factory.mktemp("fsmt")
    save_fsmt(folder / "source")
    convert("fsmt", str(folder / "source"), folder / "own")
    return Translator.from_pretrained(folder / "own", "transformers", "cpu")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\u200b b %s", ("%s",)),
        ("the\u00a0cat %s\u00a0: sat", ("%s",)),
        ("é %s", ("%s",)),
        ("日本 a", ()),  # the vocabulary of the target need not have the letters of a source
    ],
)
def test_no_text_is_refused_whose_words_the_tokens_do_not_show(fsmt, text, kept):
    output = fsmt.translate(text, max_new_tokens=8, return_tokens=True)
    assert output.restored == kept
    assert all(output.text.count(part) == 1 for part in kept)
    plain = fsmt.translate(text, max_new_tokens=8, keep=False)
    assert kept or output.text == plain
