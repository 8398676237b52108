"""Engines that solve the compiled epoch. Reached as `allocator.models`."""
