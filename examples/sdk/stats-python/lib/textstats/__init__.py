"""Statistics of texts."""
