"""Weights by other names: matched, rewritten exactly, and written for CTranslate2."""
