"""What a text holds: languages, lines, sentences, kept parts, terms, former translations, words."""
