"""Optimizers: an integer weighted sum in, a float64 step out."""
