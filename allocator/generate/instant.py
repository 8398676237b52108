"""Spans as people write them: seconds, or 3d6h30m."""

from __future__ import annotations

import re

from allocator.generate.files import refuse

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_FORM = re.compile(r"^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?$")


def parse_span(text: str) -> int:
    """Seconds of a span such as `86400`, `12h` or `3d6h`."""
    match = _FORM.match(text.strip().lower())
    if not match or not any(match.groups()):
        raise refuse("at", f"{text!r} is no span of time", "give seconds, or days, hours and minutes as in 3d6h30m")
    return sum(int(count) * factor for count, factor in zip(match.groups(), _UNITS.values(), strict=True) if count)
