"""A model for a browser: a folder with the page, the model, and the patterns of texts."""
