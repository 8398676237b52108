"""The numbers and names of the wire with the ranges in which they make sense.

The upper ends are far beyond any cluster; they keep sums of products within 64 bits and turn the usual slips (milliseconds
instead of seconds, a GPU count in the wrong field) into messages.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

TEN_YEARS = 315_360_000

Name = Annotated[str, Meta(min_length=1)]
Instant = Annotated[int, Meta(ge=0, le=100_000_000_000, description="seconds since the Unix epoch")]
Now = Annotated[int, Meta(ge=0, le=90_000_000_000, description="seconds since the Unix epoch")]
"""The clock ends before the instants do, so that whatever is promised from now on can be written down."""
Span = Annotated[int, Meta(ge=0, le=TEN_YEARS, description="seconds")]
PositiveSpan = Annotated[int, Meta(ge=1, le=TEN_YEARS, description="seconds, at least 1")]

Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
PositiveCount = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Priority = Annotated[int, Meta(ge=-1_000_000_000, le=1_000_000_000)]
NodeGpus = Annotated[int, Meta(ge=0, le=4_096)]
NodeAmount = Annotated[int, Meta(ge=0, le=1_000_000)]

Number = Annotated[float, Meta(ge=0, le=1_000_000_000_000)]
Multiplier = Annotated[float, Meta(ge=0, le=10_000)]
Part = Annotated[float, Meta(ge=0, le=1)]
