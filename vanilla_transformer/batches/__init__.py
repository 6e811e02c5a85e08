"""Pairs of texts to batches: token ids in files, drawn subwords, mixtures, token budgets."""
