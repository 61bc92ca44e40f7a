"""Settings chosen by entries that are held out: what is tried, who judges, what the winner may be worth."""
