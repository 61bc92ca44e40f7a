"""Choosing models and settings by held-out entries: ``complete`` and ``search``."""
