"""The server: models behind HTTP, with batches across requests."""
