"""Draws the pictures of the documentation from decisions: `python -m docs._pictures [FOLDER]`."""
