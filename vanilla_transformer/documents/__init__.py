"""A document in, the same document out: its lines, and the pieces of long ones."""
