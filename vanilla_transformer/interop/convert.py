"""Converts a file of weights into a model directory for the Auto classes."""

from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.interop.checkpoint_files import read_rename_rules, read_state_dict
from vanilla_transformer.interop.imported import Imported, save_imported
from vanilla_transformer.interop.systems import SYSTEMS, convert
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)
from vanilla_transformer.model.pretrained_model import VanillaTransformerPreTrainedModel


def convert_checkpoint(
    system: str,
    checkpoint: str | Path,
    output_dir: str | Path,
    num_heads: int,
    renames: str | Path | None = None,
    key: str | None = None,
    source_pad_token_id: int | None = None,
    **changes: Any,
) -> VanillaTransformerPreTrainedModel:
    """Converts a file of weights of a published system and saves the model.

    Args:
        system: "system-a" to "system-e"; see `interop.systems`.
        checkpoint: File of weights, as `read_state_dict` takes it.
        output_dir: Directory of the new model. It must be empty if it exists.
        num_heads: Number of attention heads.
        renames: YAML file of rules for names, as `interop.systems.convert` takes them.
        key: Entry of the file that holds the weights.
        source_pad_token_id: As in `interop.systems.convert`.
        **changes: Config fields that differ from the preset.

    Returns:
        The saved model. It has an output projection, except for system B: that is a bare model, and
        only its encoder holds converted weights.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If the output directory is not empty, if a file is broken, or as
            `interop.systems.convert`.
    """
    output = Path(output_dir)
    if output.is_file() or (output.is_dir() and any(output.iterdir())):
        raise ValueError(f"`output_dir` {str(output)!r} is not empty: choose another directory.")
    rules = {} if renames is None else read_rename_rules(renames)
    trained = read_state_dict(checkpoint, key)
    config, weights = convert(
        system, trained, num_heads, rules, source_pad_token_id=source_pad_token_id, **changes
    )
    encoder_only = SYSTEMS[system].encoder_only
    kind = VanillaTransformerModel if encoder_only else VanillaTransformerForConditionalGeneration
    with torch.random.fork_rng():
        torch.manual_seed(0)  # every conversion of B gets the same untrained decoder
        model = kind(config)
    model.load_state_dict(weights, strict=not encoder_only)
    model.train(False)
    save_imported(Imported(model, kind=system, source=str(checkpoint)), output)
    return model
