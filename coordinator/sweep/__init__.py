"""Sweeps: a spec with many settings, trained as runs over one pool, and compared."""
