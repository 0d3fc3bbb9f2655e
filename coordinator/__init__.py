"""The host's side: the pool that decides, the server around it, the log, the broker."""
