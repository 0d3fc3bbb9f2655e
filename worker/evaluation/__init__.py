"""Evaluation: child processes that step many lanes of episodes with batched policies."""
