"""A trainer in miniature, with all the ways in which real ones end."""
