"""Tiny random models of the package, and a padded batch."""

import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration

TINY = {
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "initializer": "xavier",  # outputs that differ from row to row
}


def make_config(**changes):
    return VanillaTransformerConfig(**{**TINY, **changes})


def add_noise(model, size=0.2):
    """Moves every parameter (biases and norms too) off its value."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return model


def make_model(
    cls=VanillaTransformerForConditionalGeneration, seed=0, attention=None, noise=0.2, **changes
):
    """A model in eval mode, every parameter of which (biases, norms) differs from its default."""
    torch.manual_seed(seed)
    model = add_noise(cls(make_config(**changes)), noise)
    if attention is not None:
        model.set_attn_implementation(attention)
    return model.eval()


def make_batch(
    source_lens=(7, 4, 6), target_lens=(5, 6, 3), vocab=40, decoder_vocab=None, side="right", seed=0
):
    """Random rows of the given lengths, padded on one side: ids, masks and labels."""
    generator = torch.Generator().manual_seed(seed)

    def rows(lengths, size):
        ids = torch.full((len(lengths), max(lengths)), 1)
        mask = torch.zeros_like(ids)
        for row, length in enumerate(lengths):
            where = slice(0, length) if side == "right" else slice(max(lengths) - length, None)
            ids[row, where] = torch.randint(3, size, (length,), generator=generator)
            mask[row, where] = 1
        return ids, mask

    input_ids, attention_mask = rows(source_lens, vocab)
    decoder_input_ids, decoder_attention_mask = rows(target_lens, decoder_vocab or vocab)
    labels, label_mask = rows(target_lens, decoder_vocab or vocab)
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "decoder_input_ids": decoder_input_ids,
        "decoder_attention_mask": decoder_attention_mask,
        "labels": labels.masked_fill(label_mask == 0, -100),
    }
