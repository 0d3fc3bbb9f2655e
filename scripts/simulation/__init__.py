"""The real pool in virtual time, with simulated workers around it, and what comes of that."""
