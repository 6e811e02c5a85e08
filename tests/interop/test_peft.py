"""Adapters of the package `peft`: trained with Trainer, saved, loaded and merged."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments

from vanilla_transformer import VanillaTransformerForConditionalGeneration

peft = pytest.importorskip("peft", reason="needs the extra `peft`")

LINEARS = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]
FUSED = ["qkv_proj", *LINEARS, "gate"]
MODELS = {
    "plain": ({}, {"target_modules": LINEARS}),
    "fused": ({"fused_qkv": True, "gated_ffn": True}, {"target_modules": FUSED}),
    "weights split in size and direction": ({}, {"target_modules": LINEARS, "use_dora": True}),
}
CHECKPOINTING = {"no checkpointing": {}} | {
    f"reentrant: {reentrant}": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": reentrant},
    }
    for reentrant in (True, False)
}


def lora(**changes):
    return peft.LoraConfig(task_type="SEQ_2_SEQ_LM", r=4, **changes)


def source(batch):
    return {k: batch[k] for k in ("input_ids", "attention_mask")}


def train(model, batch, folder, **options):
    rows = [{k: v[i] for k, v in batch.items() if "decoder" not in k} for i in range(3)]
    arguments = Seq2SeqTrainingArguments(
        str(folder),
        max_steps=2,
        per_device_train_batch_size=3,
        learning_rate=0.05,
        optim="sgd",
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        **options,
    )
    Seq2SeqTrainer(model, arguments, train_dataset=rows).train()
    return model.eval()


@pytest.mark.parametrize(("architecture", "adapter"), MODELS.values(), ids=MODELS)
def test_an_adapter_is_trained_saved_loaded_and_merged(
    tiny_model, tiny_batch, tmp_path, architecture, adapter
):
    batch = tiny_batch()
    model = train(peft.get_peft_model(tiny_model(**architecture), lora(**adapter)), batch, tmp_path)
    base = tiny_model(**architecture)
    expected = model(**batch).logits
    assert (expected - base(**batch).logits).abs().max() > 1e-3
    model.save_pretrained(tmp_path / "adapter")
    assert not list((tmp_path / "adapter").glob("*.bin"))

    loaded = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    torch.testing.assert_close(loaded(**batch).logits, expected)
    tokens = loaded.generate(**source(batch), max_new_tokens=5)
    merged = loaded.merge_and_unload()
    assert type(merged) is VanillaTransformerForConditionalGeneration
    torch.testing.assert_close(merged(**batch).logits, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(merged.generate(**source(batch), max_new_tokens=5), tokens)
    merged.save_pretrained(tmp_path / "merged")
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(again(**batch).logits, merged(**batch).logits)


def test_checkpointing_trains_adapters_to_the_same_values(tiny_model, tiny_batch, tmp_path):
    batch, trained = tiny_batch(), {}
    for name, options in CHECKPOINTING.items():
        torch.manual_seed(0)
        model = peft.get_peft_model(tiny_model(dropout=0.0), lora(target_modules=LINEARS))
        train(model, batch, tmp_path, **options)
        trained[name] = {n: p for n, p in model.named_parameters() if p.requires_grad}
    plain = trained.pop("no checkpointing")
    assert all(p.abs().sum() > 0 for name, p in plain.items() if "lora_B" in name)
    assert {name.split(".lora_")[0].split(".")[-1] for name in plain} == set(LINEARS)
    for found in trained.values():
        for name, parameter in plain.items():
            torch.testing.assert_close(found[name], parameter, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "positions"),
    [
        ("PromptTuningConfig", "sinusoidal"),
        *(("PrefixTuningConfig", name) for name in ("learned", "rope", "alibi", "relative")),
    ],
)
def test_virtual_tokens_are_generated_from_as_they_are_trained(
    tiny_model, tiny_batch, kind, positions
):
    sizes = {"num_layers": 3, "num_attention_heads": 4}  # the decoder's, which may differ
    config = getattr(peft, kind)(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=4, **sizes)
    base = tiny_model(position_embedding_type=positions, norm_placement="pre")
    model = peft.get_peft_model(base, config).eval()
    batch = tiny_batch()
    found = model.generate(
        **source(batch),
        max_new_tokens=5,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    forced = model(**source(batch), decoder_input_ids=found.sequences[:, :-1]).logits[:, -5:]
    torch.testing.assert_close(torch.stack(found.logits, 1), forced, rtol=1e-4, atol=1e-4)
    model(**batch).loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in model.parameters() if p.requires_grad)


ADAPTERS = {
    "LoRA": ("LoraConfig", {"target_modules": "all-linear", "init_lora_weights": False}),
    "IA3": (
        "IA3Config",
        {
            "target_modules": ["q_proj", "fc2"],
            "feedforward_modules": ["fc2"],
            "init_ia3_weights": False,
        },
    ),
    "VeRA": ("VeraConfig", {"target_modules": ["q_proj", "v_proj"], "init_weights": False}),
    "LoHa": ("LoHaConfig", {"target_modules": ["q_proj", "fc1"], "init_weights": False}),
    "LoKr": ("LoKrConfig", {"target_modules": ["q_proj", "fc1"], "init_weights": False}),
}


ALL_TOKENS = list(range(12))
RANDOM = {"target_modules": ["q_proj"], "init_lora_weights": False}
ADAPTERS |= {
    f"LoRA {name}": ("LoraConfig", RANDOM | more)
    for name, more in {
        "on the embeddings": {"target_modules": ["embed_tokens"]},
        "on the decoder's": {"target_modules": ["decoder.embed_tokens"]},
        "on the matrix of both": {"target_modules": ["q_proj", "shared"]},
        "on the head": {"target_modules": ["q_proj", "lm_head"]},
        "on head and embeddings": {"target_modules": ["embed_tokens", "lm_head"]},
        "on both, tied": {"target_modules": ["embed_tokens"], "ensure_weight_tying": True},
        "and whole embeddings": {"modules_to_save": ["embed_tokens"]},
        "and a whole head": {"modules_to_save": ["lm_head"]},
        "and some tokens": {"trainable_token_indices": ALL_TOKENS},
        "and some tokens of one": {"trainable_token_indices": {"decoder.embed_tokens": ALL_TOKENS}},
    }.items()
} | {
    "IA3 on the head": ("IA3Config", {**ADAPTERS["IA3"][1], "target_modules": ["fc2", "lm_head"]}),
    "LoKr on the head": ("LoKrConfig", {"target_modules": ["lm_head"], "init_weights": False}),
}


@pytest.mark.parametrize(
    ("adapter", "shared", "tied"),
    [
        (adapter, *ties)
        for adapter in ADAPTERS
        for ties in ((True, True), (True, False), (False, True), (False, False))
        if ties == (True, True) or adapter.startswith("LoRA ")
    ],
)
def test_merging_saving_and_loading_keep_the_outputs(
    tiny_model, tiny_batch, tmp_path, adapter, shared, tied
):
    kind, options = ADAPTERS[adapter]
    if "of both" in adapter and not shared:
        pytest.skip("there is no such matrix")
    if "tokens of one" in adapter and shared and tied:
        pytest.skip("it is refused")
    ties = {"share_encoder_decoder_embeddings": shared, "tie_word_embeddings": tied}
    model = tiny_model(**ties, lm_head_bias="tokens" not in adapter)
    adapted = peft.get_peft_model(model, getattr(peft, kind)(**options)).eval()
    batch = tiny_batch()
    inputs = {**source(batch), "decoder_input_ids": batch["decoder_input_ids"]}
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "modules_to_save" in name or "trainable_tokens" in name:
                parameter += torch.randn_like(parameter)
        expected = adapted(**inputs).logits
        merged = adapted.merge_and_unload()
        torch.testing.assert_close(merged(**inputs).logits, expected, rtol=1e-4, atol=1e-4)
        merged.tie_weights()
        merged.resize_token_embeddings(merged.config.vocab_size + 3)
        merged.save_pretrained(tmp_path)
        loaded, info = VanillaTransformerForConditionalGeneration.from_pretrained(
            tmp_path, output_loading_info=True
        )
        logits = loaded.eval()(**inputs).logits[..., : expected.shape[-1]]
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    assert not any(info.values())
    if not adapter.startswith("LoRA ") and "head" not in adapter:
        assert {name: getattr(loaded.config, name) for name in ties} == ties


def test_tokens_of_one_matrix_are_trained_for_all_of_its_uses(tiny_model, tiny_batch):
    batch = tiny_batch()
    adapter = lora(target_modules=LINEARS, trainable_token_indices=ALL_TOKENS)
    adapted = peft.get_peft_model(tiny_model(), adapter).eval()
    trained = [p for name, p in adapted.named_parameters() if "trainable_tokens_delta" in name]
    assert len(trained) == 1
    with torch.no_grad():
        trained[0].normal_()
        expected = adapted(**batch).logits
        merged = adapted.merge_and_unload()
        torch.testing.assert_close(merged(**batch).logits, expected, rtol=1e-4, atol=1e-4)
    assert merged.lm_head.weight is merged.model.encoder.embed_tokens.weight
    assert merged.config.tie_word_embeddings


@pytest.mark.parametrize(
    ("bias", "indices"), [(True, [5]), (False, {"encoder.embed_tokens": [5], "lm_head": [6]})]
)
def test_tokens_that_peft_cannot_merge_are_refused(tiny_model, bias, indices):
    adapter = lora(target_modules=LINEARS, trainable_token_indices=indices)
    with pytest.raises(ValueError, match="trainable_token_indices"):
        peft.get_peft_model(tiny_model(lm_head_bias=bias), adapter)
