"""Whose results are believed: comparisons, disputes and the standing of workers; pure."""

from coordinator.trust.answers import Answer, Comparison, compare
from coordinator.trust.dispute import Dispute
from coordinator.trust.trust import Record, Standing, Trust

__all__ = ["Answer", "Comparison", "Dispute", "Record", "Standing", "Trust", "compare"]
