"""A document in, the same document out: lines, sentences, tags, kept parts, terms, file formats."""
