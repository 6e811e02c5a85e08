"""Files: written whole or not at all, locked; texts, JSON, pairs, tables; folders of models."""
