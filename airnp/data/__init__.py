"""Data: reading what users have, normalising it, bounds, holding entries out, linear maps."""
