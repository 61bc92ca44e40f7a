"""Intervals around completed entries, calibrated on entries that the fit had not seen."""
