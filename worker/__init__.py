"""The volunteer's side: a replica of the run, evaluation in child processes, the daemon."""
