"""Additions to the stock Trainer: batches, schedules, losses, averages, metrics, callbacks, Hub."""
