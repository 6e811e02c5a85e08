"""From text to batches: files and data sets of the Hub, token ids, budgets of tokens, subwords."""
