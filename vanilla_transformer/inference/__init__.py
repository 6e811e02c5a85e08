"""Text in, text out, with a saved model."""
