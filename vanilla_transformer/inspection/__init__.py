"""Looks into a model: shapes, attention, heads and costs.

Functions that draw return figures of matplotlib, which the extra `plot` installs.
"""

from vanilla_transformer.inspection.attention_figures import (
    plot_alignment,
    plot_head_scores,
    plot_heads,
)
from vanilla_transformer.inspection.attention_maps import AttentionMaps, attention_maps
from vanilla_transformer.inspection.cost import Cost, cost
from vanilla_transformer.inspection.head_ablation import ablate_heads, attention_heads, head_scores
from vanilla_transformer.inspection.shapes import ShapeRecord, ShapeWalk, shape_walk

__all__ = [
    "AttentionMaps",
    "Cost",
    "ShapeRecord",
    "ShapeWalk",
    "ablate_heads",
    "attention_heads",
    "attention_maps",
    "cost",
    "head_scores",
    "plot_alignment",
    "plot_head_scores",
    "plot_heads",
    "shape_walk",
]
