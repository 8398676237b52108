"""What everything costs, discounted to the first quarter, in whole units of money."""

from __future__ import annotations

from allocator.planning.question import Existing, Question, Unit


def order_cost(question: Question, unit: Unit, quarter: int) -> int:
    """Price and running costs of a unit that is ordered in a quarter, less what it is still worth at the end.

    A unit loses its price evenly over its life; the part `residual` of what is left after the last quarter is credited.
    """
    last = len(question.quarters)
    price = unit.prices[quarter]
    served = [number for number in range(last) if unit.serves(quarter, number)]
    running = sum(unit.running * _factor(question, number) for number in served)
    left = (unit.life - len(served)) / unit.life
    credit = question.residual * price * left * _factor(question, last)
    return round(price * _factor(question, quarter) + running - credit)


def keep_cost(question: Question, existing: Existing, quarter: int) -> int:
    """Running costs of an existing unit in a quarter."""
    return round(existing.running * _factor(question, quarter))


def _factor(question: Question, quarter: int) -> float:
    """Present value of one unit of money in a quarter."""
    return float((1 + question.discount) ** (-quarter / 4))
