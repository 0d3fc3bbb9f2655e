"""What a run has been: any version rebuilt, the log read, proved, mended, forked and archived."""
