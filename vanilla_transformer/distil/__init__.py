"""A small model from any teacher: it labels texts, and the model learns from the labels."""
