"""What a process that plays a policy says to who started it: frames and news, behind heads."""

from __future__ import annotations

import struct

HEAD = struct.Struct(">cI")
"""What follows, and how many bytes it has."""
FRAME, NEWS = b"F", b"J"
"""A picture, as JPEG; what is played, or why nothing is, as JSON."""
LARGEST = 1 << 20
"""Bytes of either at most."""
