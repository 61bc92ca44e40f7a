"""Results and runs on disk: written whole or not at all, read without pickle, resumed to the bit."""
