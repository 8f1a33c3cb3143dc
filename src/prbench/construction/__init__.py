"""From people's posts to verified pairs: build, check, privacy."""
