"""Mutated and random payloads for everything here that reads what others wrote."""
