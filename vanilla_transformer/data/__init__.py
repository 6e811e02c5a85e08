"""Text to batches: files and Hub data sets, token ids, token budgets, streams, subwords."""
