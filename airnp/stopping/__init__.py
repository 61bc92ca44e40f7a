"""When to stop, and which iterate to return: rules, the monitors that carry them out, what is held out."""
