"""A tiering round: splits, their generation, reading, committing."""
