"""Recipes of constructed scenarios, one TOML file each; see `allocator.generate.scenario`."""
