"""The host's full-screen view: `frame` and its parts draw, `keys` decides, `screen` does."""
