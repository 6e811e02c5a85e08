"""Files: written whole or not at all, read as texts, JSON and pairs, locked; folders of models."""
