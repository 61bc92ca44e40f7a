"""Pictures: filled in whole or in tiles, in memory or larger than it, and read and written as files."""
