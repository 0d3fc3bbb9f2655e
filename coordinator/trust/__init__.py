"""Whose results are believed: comparisons, disputes and the standing of workers; pure."""

from coordinator.trust.answers import Answer, Comparison, compare
from coordinator.trust.dispute import Dispute
from coordinator.trust.residuals import Part, parts
from coordinator.trust.trust import Record, Standing, Trust

__all__ = [
    "Answer",
    "Comparison",
    "Dispute",
    "Part",
    "Record",
    "Standing",
    "Trust",
    "compare",
    "parts",
]
