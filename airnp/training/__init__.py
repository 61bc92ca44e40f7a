"""One run of a fit: iterate, record, stop, save, resume; progress and interrupts."""
