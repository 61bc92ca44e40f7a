"""Benchmarks: one command per question, each printing ratios measured in the same run."""
