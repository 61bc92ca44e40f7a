"""What comes back: results, graphs, intervals, new rows, and their files."""
