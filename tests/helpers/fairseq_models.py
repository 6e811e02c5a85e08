"""Small models of transformers as checkpoints of fairseq."""

from argparse import Namespace

import torch
from transformers import FSMTForConditionalGeneration

SIZES = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 24}
SIZES |= {"decoder_ffn_dim": 20, "encoder_attention_heads": 4, "decoder_attention_heads": 2}
FSMT = {"src_vocab_size": 31, "tgt_vocab_size": 27, "langs": ["en", "de"]}
OPTIONS = {
    "arch": "transformer_iwslt_de_en",
    "source_lang": "en",
    "target_lang": "de",
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_embed_dim": 16,
    "decoder_embed_dim": 16,
    "encoder_normalize_before": False,
    "decoder_normalize_before": False,
    "label_smoothing": 0.1,
}
SEARCH = {"max_length": 9, "min_length": 0, "early_stopping": True, "length_penalty": 1.0}
SEARCH |= {"forced_eos_token_id": None, "do_sample": False}


def sinusoids_of(model):
    """The name of the parameter in which FSMT keeps its sinusoids."""
    return "embed_positions" if isinstance(model, FSMTForConditionalGeneration) else "none"


def filled(model):
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if sinusoids_of(model) not in name:
                parameter.copy_(0.4 * torch.randn_like(parameter))
    return model.eval()


def weights_of(model, **extra):
    """The weights under fairseq's names, which are those of transformers without a prefix."""
    weights = {}
    own = {"shared", "final_logits_bias", sinusoids_of(model)}
    for name, tensor in model.state_dict().items():
        old = name.removeprefix("model.").replace("lm_head", "decoder.output_projection")
        if not any(part in old for part in own):
            weights[old] = tensor
    versions = {f"{stack}.version": torch.tensor([3.0]) for stack in ("encoder", "decoder")}
    return {**weights, **versions, **extra}


def save(path, weights, form="args", **options):
    given = {**OPTIONS, **options}
    if form == "args":
        torch.save({"args": Namespace(**given), "model": weights, "optimizer_history": []}, path)
        return path
    task = {"_name": "translation", "source_lang": "en", "target_lang": "de"}
    nested = {"encoder": {}, "decoder": {}, "_name": given.pop("arch")}
    for name, value in given.items():
        stack, _, rest = name.partition("_")
        place = nested[stack] if stack in ("encoder", "decoder") else nested
        place[rest if stack in ("encoder", "decoder") else name] = value
    criterion = {"label_smoothing": given["label_smoothing"]}
    config = {"model": nested, "task": task, "criterion": criterion}
    torch.save({"args": None, "cfg": config, "model": weights}, path)
    return path
