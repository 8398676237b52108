"""CP-SAT engine: the reference model, exact, every rule."""
