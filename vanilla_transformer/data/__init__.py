"""Corpora to batches: entries, files and data sets, filters, token ids, token budgets."""
