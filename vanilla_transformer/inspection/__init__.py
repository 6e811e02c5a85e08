"""Looking into a model: the shapes that flow through it, and its heads switched off."""

from vanilla_transformer.inspection.shapes import ShapeRecord, ShapeWalk, shape_walk

__all__ = ["ShapeRecord", "ShapeWalk", "shape_walk"]
