"""The evidence: policies replayed side by side, defaults against other settings, and the page that shows it."""
