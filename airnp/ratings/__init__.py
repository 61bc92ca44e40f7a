"""Tables of ratings: one call, and what it returns."""
