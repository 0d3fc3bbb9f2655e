"""Environments, policies and learners as programs of JAX, which only this package imports."""
