"""The tables of the systems that Shoal follows, run again: rows, one seed of one, and the page."""
