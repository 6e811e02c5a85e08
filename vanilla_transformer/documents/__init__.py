"""A document in, the same document out: tags, messages, file formats, files of memories."""
