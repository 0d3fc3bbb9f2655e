"""What peers must agree on, bit for bit: words on the wire, noise, updates, state, spec, keys."""
