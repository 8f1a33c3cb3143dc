"""Token sequences through a decoder at once: packed behind their common beginnings, each computed once."""
