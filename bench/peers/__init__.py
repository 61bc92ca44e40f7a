"""The same model as a good user of another library would write it."""
