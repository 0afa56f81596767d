"""The embedded trainer: a small model whose right answer is known under every layout."""
