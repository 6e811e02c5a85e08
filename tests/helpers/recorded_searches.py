"""Searches whose steps are recorded, and the same searches without."""

import torch
from tiny_models import make_batch, make_model

from vanilla_transformer.model import generation, recorded_search

ENDS = [2, 7]
SEARCHES = {
    "greedy": {},
    "greedy that ends": {"eos_token_id": ENDS},
    "greedy without end": {"eos_token_id": None},
    "2 beams": {"num_beams": 2},
    "without end": {"num_beams": 4, "eos_token_id": None},
    "several results": {"num_beams": 4, "num_return_sequences": 3, "eos_token_id": ENDS},
    "until the beams are full": {"num_beams": 3, "eos_token_id": ENDS, "early_stopping": True},
    "the best": {"num_beams": 4, "eos_token_id": ENDS, "early_stopping": "never"},
    "short": {"num_beams": 4, "eos_token_id": ENDS, "length_penalty": 0.0},
    "long": {
        **{"num_beams": 3, "eos_token_id": ENDS, "early_stopping": "never"},
        "length_penalty": 1.4,
    },
    "all end at once": {"num_beams": 2, "eos_token_id": list(range(2, 40)), "early_stopping": True},
    "forced": {"num_beams": 2, "forced_bos_token_id": 9, "forced_eos_token_id": 2},
    "forbidden": {
        **{"num_beams": 3, "bad_words_ids": [[1], [5]], "suppress_tokens": [6, 7]},
        **{"begin_suppress_tokens": [8, 9], "eos_token_id": ENDS},
    },
    "not too short": {"num_beams": 3, "min_new_tokens": 4, "eos_token_id": ENDS},
    "all rules": {
        **{"num_beams": 3, "num_return_sequences": 2, "early_stopping": "never"},
        **{"forced_bos_token_id": 9, "min_new_tokens": 4, "bad_words_ids": [[1], [5]]},
        **{"suppress_tokens": [6], "length_penalty": 1.4, "eos_token_id": ENDS},
    },
    "greedy with rules": {
        **{"forced_bos_token_id": 9, "min_length": 5, "bad_words_ids": [[1]]},
        **{"eos_token_id": ENDS, "forced_eos_token_id": 2},
    },
}

LIVELY = {"tie_word_embeddings": False, "norm_placement": "pre", "lm_head_bias": True}


def lively_model(**changes):
    """A model that does not repeat one token, and ends some outputs early."""
    model = make_model(**{**LIVELY, **changes})
    with torch.no_grad():
        model.lm_head.bias[ENDS] += 1.0
    return model


def source_batch(lengths=(7, 4, 6), side="right"):
    batch = make_batch(lengths, (2,) * len(lengths), side=side)
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


def count_records(monkeypatch):
    """Counts the searches that are recorded."""
    made, begin = [], recorded_search._Decoder.__init__
    monkeypatch.setattr(
        recorded_search._Decoder, "__init__", lambda *args: made.append(1) or begin(*args)
    )
    return made


def plainly(monkeypatch, model, **options):
    """What `generate()` returns where nothing is recorded."""
    with monkeypatch.context() as on_cpu:
        for module in (recorded_search, generation):
            on_cpu.setattr(module, "is_on_gpu", lambda model: False)
        return model.generate(**options)
