"""Trainings that programs start: what `shoal.train` and `shoal.Evolution` are made of."""
