"""The web dashboard and `/metrics`: a led run for browsers, and for what collects figures."""
