"""Corpora to pairs of texts: entries, files and data sets, filters, terms and memories."""
