from __future__ import annotations

from protocol.messages import TYPES, Cohort, Held, Judged, Observed, Part
from protocol.tables import field_table

NUMBERS = {kind: kind.__struct_config__.tag for kind in TYPES}


def test_the_table_has_every_message_and_every_field() -> None:
    table = field_table()
    assert [row[0] for row in table] == [*sorted(NUMBERS.values()), *[None] * 5]
    kinds = (*TYPES, Part, Cohort, Observed, Judged, Held)
    for (number, name, meaning, fields), kind in zip(table, kinds, strict=True):
        assert (number, name) == (NUMBERS.get(kind), kind.__name__)
        assert meaning.endswith((".", "?", ".", ";"))
        assert [field for field, _ in fields] == list(kind.__struct_fields__)
        for _, description in fields:
            assert description
            assert "Type" not in description
            assert "<" not in description


def test_the_table_tells_bounds_and_choices() -> None:
    fields = {name: dict(rows) for _, name, _, rows in field_table()}
    assert fields["Task"]["kind"] == "`centre` or `members`"
    assert fields["Task"]["count"] == "int from 1 to 4,096"
    assert fields["Task"]["token"] == "bytes 16 long"
    assert fields["Result"]["part"] == "Part"
    task = "int from 0 to 4,611,686,018,427,387,904"
    assert fields["Task"]["acknowledged"] == f"up to 256 of ({task} or 2 of ({task}))"
    assert fields["Update"]["cohorts"] == "up to 4,096 of (Cohort)"
