"""Small random models of transformers' own classes, and what a conversion must keep."""

import torch

from vanilla_transformer.files.loading import load_model
from vanilla_transformer.inspection import attention_maps
from vanilla_transformer.interop.hf_families import FAMILIES

SIZES = {
    "vocab_size": 50,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 40,
}
APART = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
UNREAD = {"_name_or_path", "architectures", "dtype", "init_std", "langs", "normalize_before"}
"""Entries of a config that its class does not compute with."""


def make_lively(model, seed=0):
    """Moves every trained weight off its default, also biases and norms; not the sinusoids."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            module = model.get_submodule(name.rpartition(".")[0])
            if "Sinusoidal" not in type(module).__name__:
                parameter.add_(0.3 * torch.randn_like(parameter))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    return model.eval()


def make_source(model_class, config, seed=0):
    torch.manual_seed(seed)
    return make_lively(model_class(config), seed)


def family_of(kind):
    return FAMILIES["m2m_100" if kind in ("m2m100", "nllb") else kind]


def make(kind, **changes):
    family = family_of(kind)
    fields = {**SIZES, "decoder_start_token_id": 2}
    if kind == "marian":
        special = {"pad_token_id": 49, "decoder_start_token_id": 49, "eos_token_id": 0}
        fields |= {**special, "forced_eos_token_id": 0}
    elif kind == "fsmt":
        fields |= {"src_vocab_size": fields.pop("vocab_size"), "tgt_vocab_size": 60}
    source = make_source(family.model_class, family.config_class(**{**fields, **changes}))
    if kind == "marian":
        source.generation_config.bad_words_ids = [[49], [5, 6]]
    return source


def draw_batch(config, side="right"):
    """Three rows of different lengths, padded on one side, and a target without padding."""
    generator = torch.Generator().manual_seed(1)
    real = torch.arange(9) < torch.tensor([9, 6, 4])[:, None]
    real = real.flip(1) if side == "left" else real
    ids = torch.randint(3, 45, real.shape, generator=generator)
    return {
        "input_ids": ids.where(real, config.pad_token_id),
        "attention_mask": real.long(),
        "decoder_input_ids": torch.randint(3, 45, (3, 6), generator=generator),
    }


def assert_same_function(source, ours, sides=("right",), beams=(1, 3)):
    """Logits within 1e-5, and equal output of greedy and beam search."""
    for side in sides:
        batch = draw_batch(source.config, side)
        with torch.no_grad():
            expected = source(**batch, use_cache=False).logits
            found = ours(**batch).logits
        assert expected.std() > 0.1
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        del batch["decoder_input_ids"]
        for count in beams:
            settings = {"num_beams": count, "do_sample": False, "max_length": 10}
            outputs = [each.generate(**batch, **settings) for each in (source, ours)]
            assert torch.equal(*outputs), (side, count)


def assert_inspectable(directory, text):
    """The attention of a converted model stands beside the tokens of both sides."""
    model, tokenizer = load_model(str(directory))
    maps = attention_maps(model, tokenizer, text)
    source = tokenizer(text)["input_ids"]
    assert tokenizer.convert_tokens_to_ids(maps.source) == source  # by the source's vocabulary
    assert maps.cross.shape[2:] == (len(maps.predicted), len(source))
    target = tokenizer(text_target=text)["input_ids"]
    again = attention_maps(model, tokenizer, text, target)
    assert again.predicted == tokenizer.convert_ids_to_tokens(target)
    assert len(again.fed) == len(target)


def assert_same_weights(source, back):
    before, after = source.state_dict(), back.state_dict()
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert torch.equal(value, after[name]), name
    assert type(back) is type(source)
    written, expected = (each.config.to_dict() for each in (back, source))
    differing = {name for name in expected if written.get(name) != expected[name]}
    assert differing <= UNREAD, differing
