"""The commands behind ``airnp …``: one module each, and three modules that they share."""
