"""Built-in policies: batched forward passes over lanes, each lane with parameters of its own."""
