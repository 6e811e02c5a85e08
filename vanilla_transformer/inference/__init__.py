"""Texts in, texts out: the stages between them, and what computes them."""
