"""Makes a ready model one's own: it learns from pairs of texts and is compared with the former."""
