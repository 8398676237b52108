"""Reports: the results of replays and what-if studies as one HTML page that works offline."""

from allocator.pages.page import build_report

__all__ = ["build_report"]
