"""Adapters of low rank (LoRA) inside of a model, which stays an ordinary model."""

from typing import Any

from vanilla_transformer.extras import optional_packages

_EMBEDDINGS = ("model.encoder.embed_tokens", "model.decoder.embed_tokens")


def add_adapters(model: Any, rank: int, with_embeddings: bool = False) -> None:
    """Adds adapters to all linear layers but the output projection; only they are trained.

    With `with_embeddings`, the embeddings and the output projection are trained too. Checkpoints
    hold weights and adapters, so that everything works on them as on whole models.
    """
    with optional_packages():
        from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    inject_adapter_in_model(config, model)
    if with_embeddings:
        for module in (*map(model.get_submodule, _EMBEDDINGS), model.get_output_embeddings()):
            module.requires_grad_(True)


def merge_adapters(model: Any) -> None:
    """Adds the adapters to the weights, and takes them out of the model."""
    with optional_packages():
        from peft.tuners.lora import LoraLayer

    for name, module in list(model.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge(safe_merge=True)
            model.set_submodule(name, module.get_base_layer())
    model.requires_grad_(True)
