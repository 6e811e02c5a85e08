"""Looks into a model: the shapes it computes, its attention weights, and its heads ablated."""

from vanilla_transformer.inspection.attention_maps import AttentionMaps, attention_maps
from vanilla_transformer.inspection.head_ablation import (
    ablate_heads,
    attention_heads,
    head_scores,
)
from vanilla_transformer.inspection.shapes import ShapeRecord, ShapeWalk, shape_walk

__all__ = [
    "AttentionMaps",
    "ShapeRecord",
    "ShapeWalk",
    "ablate_heads",
    "attention_heads",
    "attention_maps",
    "head_scores",
    "shape_walk",
]
