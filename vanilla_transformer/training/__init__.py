"""Training: data, metrics, batching and the command-line recipe around the stock Trainer."""
