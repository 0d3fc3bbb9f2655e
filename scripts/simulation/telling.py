"""A report for people: a table with units."""

from __future__ import annotations

from scripts.simulation.report import Report


def table(report: Report) -> str:
    """One figure a line."""
    ages = ", ".join(f"{age}: {share:.1%}" for age, share in report.ages.items())
    messages = ", ".join(
        f"{number:,} {kind} of {report.message_bytes[kind]:,.0f} bytes"
        for kind, number in report.messages.items()
    )
    rows = [
        ("efficiency", f"{report.efficiency:.1%} of what the workers there could have evaluated"),
        ("  waiting for all, equal parts", _baseline(report.wait_for_all_efficiency)),
        ("  parts by declared speed", _baseline(report.static_split_efficiency)),
        ("accepted", f"{report.accepted:.1%} likewise, whichever update will use it"),
        ("workers busy", f"{report.busy:.1%} of their time"),
        ("updates", f"{report.updates:,} in {report.seconds:.1f} s, one in "
         f"{report.update_seconds:.2f} s, {report.members:,} members used"),
        ("  waiting for all, equal parts", _seconds(report.wait_for_all_update_seconds)),
        ("  parts by declared speed", _seconds(report.static_split_update_seconds)),
        ("stale", f"{report.stale_share:.1%} of the members used; by age in versions: {ages}"),
        ("tail", f"{report.tail_seconds_median:.2f} s from all leased to closed (median), "
         f"{report.tail_seconds_95:.2f} s (95th percentile)"),
        ("leased again", f"{report.leased_again_share:.1%} of the members leased, "
         f"{report.copied_share:.1%} as copies"),
        ("for nothing", f"{report.duplicate_share:.1%} of the members returned came second, "
         f"{report.late_share:.1%} too late"),
        ("length and weight", f"{report.length_weight_correlation:+.3f} rank correlation"),
        ("messages", f"{report.messages_per_second:,.0f} a second: {messages}"),
        ("bytes", f"{report.bytes_per_member:.1f} per member used; an update counts once; "
         f"{report.unreadable_updates} updates did not fit a message"),
        ("pool", f"{report.events:,} events, {report.events_per_second:,.0f} a second of its own "
         f"time, the slowest {1000 * report.slowest_event_seconds:.0f} ms"),
        ("applied twice, lost", f"{report.applied_twice}, {report.lost} directions"),
    ]  # fmt: skip
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _baseline(efficiency: float | None) -> str:
    return "not simulated" if efficiency is None else f"{efficiency:.1%}"


def _seconds(seconds: float | None) -> str:
    return "not simulated" if seconds is None else f"one in {seconds:.1f} s"
