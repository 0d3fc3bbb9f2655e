"""Many workers in one process: real connections, real messages, returns made up."""
