"""What is added to the stock Trainer: batches, schedules, losses, averages, metrics, the Hub."""
