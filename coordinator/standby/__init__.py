"""Follows a run that somebody else leads, keeps its log, and is ready to lead it on."""

from coordinator.standby.standby import Standby

__all__ = ["Standby"]
