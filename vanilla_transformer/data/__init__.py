"""Corpora to batches: entries, filters, rows, token ids, shards, token budgets, subwords."""
