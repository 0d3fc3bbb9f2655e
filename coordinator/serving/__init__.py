"""What newcomers and those who fell behind get, and from whom."""

from coordinator.serving.serving import Serving

__all__ = ["Serving"]
