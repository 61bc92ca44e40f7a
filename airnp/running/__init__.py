"""One run of a fit: the loop, what it trains, what it watches and tells, and how it is interrupted."""
