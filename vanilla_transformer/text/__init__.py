"""Texts: their languages, lines, sentences, kept parts, terms, former translations and words."""
