"""Evolution strategies: returns in, integer weights out."""
