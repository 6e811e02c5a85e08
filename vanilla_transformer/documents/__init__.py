"""A document in, the same document out: file formats, tags, messages, files of memories."""
