"""The commands behind ``airnp …``, one module each, and what they share."""
