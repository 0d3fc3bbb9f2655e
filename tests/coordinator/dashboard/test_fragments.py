"""Events of a stream, compressed once for all pages."""

from __future__ import annotations

import zlib

from coordinator.dashboard.fragments import GZIP_HEADER, fragment, opening


def test_any_fragments_behind_a_header_are_a_gzip_stream_that_is_readable_at_once() -> None:
    told = [fragment({"number": number, "text": "<>" * number}) for number in range(20)]
    for begin in (0, 7):
        reader = zlib.decompressobj(wbits=31)
        read = reader.decompress(GZIP_HEADER + opening().deflated)
        for each in told[begin:]:
            more = reader.decompress(each.deflated)
            assert more == each.plain  # nothing waits for what comes later
            read += more
        assert read == opening().plain + b"".join(each.plain for each in told[begin:])
