"""Rows that resemble each other, modelled by Gaussians in closed form.

:mod:`airnp.resemblance.gaussian` is the specification: the Gaussian of a group of rows, and what it says
about the gaps of each row. A table is one group of rows, then local ones.
"""
