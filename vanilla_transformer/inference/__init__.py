"""Loads saved models and generates text with them."""
