"""Fit many problems side by side, on processes of one machine or on a cluster."""
