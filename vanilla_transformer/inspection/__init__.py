"""Looking into a model: the shapes that flow through it, and its heads switched off."""

from vanilla_transformer.inspection.heads import ablate_heads, attention_heads, head_scores
from vanilla_transformer.inspection.shapes import ShapeRecord, ShapeWalk, shape_walk

__all__ = [
    "ShapeRecord",
    "ShapeWalk",
    "ablate_heads",
    "attention_heads",
    "head_scores",
    "shape_walk",
]
