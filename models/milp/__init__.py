"""MILP engine: the same reduced problem through PuLP and HiGHS, a second opinion with a linear bound."""
