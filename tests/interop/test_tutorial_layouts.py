"""Models in the layouts of two tutorials are found by their names, and compute the same here.

The models are those of the parity tests, which are written without the package, under other names.
"""

import pytest
import torch
from tutorial_layouts import HEADS, SIZE, Annotated, Seq2Seq, random_model, weights_of

from vanilla_transformer.interop.recognition import recognised_kind
from vanilla_transformer.interop.tutorials import read_layout


@pytest.mark.parametrize(("kind", "prefix"), [(Seq2Seq, ""), (Annotated, "module.")])
def test_the_logits_are_those_of_the_tutorial(kind, prefix, tmp_path):
    model = random_model(kind)
    weights = {f"{prefix}{name}": tensor for name, tensor in weights_of(model).items()}
    torch.save(weights, tmp_path / "model.pt")
    assert recognised_kind(tmp_path / "model.pt") == "tutorials"
    imported = read_layout(tmp_path / "model.pt", HEADS)
    source, target = torch.randint(4, SIZE, (3, 9)), torch.randint(4, SIZE, (3, 6))
    source[1, 5:] = model.pad
    with torch.no_grad():
        expected = model(source, target, model.pad)
        found = imported.model(
            input_ids=source,
            attention_mask=(source != model.pad).long(),
            decoder_input_ids=target,
        ).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert imported.model.config.pad_token_id == model.pad


def test_other_positions_are_refused(tmp_path):
    weights = weights_of(random_model(Annotated))
    weights["src_embed.1.pe"] = weights["src_embed.1.pe"] + 1
    torch.save(weights, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="it does not hold the positions"):
        read_layout(tmp_path / "other.pt", HEADS)
