"""The headers and query parameters of calls: one table for checking and for the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request

from allocator.domain import Issue
from allocator.engine import ENGINES
from allocator.service.problems import Kind, RefusedError
from allocator.service.settings import Settings
from allocator.wire.scalars import TEN_YEARS
from allocator.wire.shapes import nearest, show

LEAST_SECONDS = 0.1
"""A call cannot ask for an answer in less."""

_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its name, where it stands, the field of `Call` it sets, its JSON Schema and its meaning."""

    name: str
    where: Literal["header", "query"]
    field: str
    schema: Mapping[str, Any]
    meaning: str

    def read(self, text: str) -> Any:
        """The value of a text; None where it does not fit the schema."""
        kind = self.schema["type"]
        if kind == "string":
            fits = text in self.schema["enum"] if "enum" in self.schema else 0 < len(text) <= self.schema["maxLength"]
            return text if fits else None
        if not _NUMBER.fullmatch(text):
            return None
        value = float(text)
        if not self.schema.get("minimum", -1e300) <= value <= self.schema.get("maximum", 1e300):
            return None
        if kind == "number":
            return value
        return int(value) if value == int(value) else None

    @property
    def wanted(self) -> str:
        """What would be valid, in words."""
        if "enum" in self.schema:
            return f"give one of {', '.join(self.schema['enum'])}"
        if self.schema["type"] == "string":
            return f"give 1 to {self.schema['maxLength']:,} characters"
        article = "an integer" if self.schema["type"] == "integer" else "a number"
        most = f" to {self.schema['maximum']:,}" if "maximum" in self.schema else " upwards"
        return f"give {article} from {self.schema['minimum']:,}{most}"


def parameters_of(operation: str, settings: Settings) -> tuple[Parameter, ...]:
    """The parameters that an operation knows."""
    seconds = {"type": "number", "minimum": LEAST_SECONDS, "maximum": settings.max_seconds, "default": settings.default_seconds}
    budget = Parameter("Allocator-Time-Limit", "header", "seconds", seconds, "Seconds from the call to the answer.")
    name = {"type": "string", "minLength": 1, "maxLength": 4096}
    more = {
        "decisions": (
            Parameter(
                "Allocator-Engine",
                "header",
                "engine",
                {"type": "string", "enum": list(ENGINES), "default": "portfolio"},
                "Engines that may answer.",
            ),
            Parameter(
                "Allocator-Seed",
                "header",
                "seed",
                {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "default": 0},
                "Seed of the engines.",
            ),
            Parameter(
                "Allocator-Gap",
                "header",
                "gap",
                {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
                "Gap at which to stop, as a share of the cluster's time.",
            ),
        ),
        "apply": (
            Parameter(
                "advance",
                "query",
                "advance",
                {"type": "integer", "minimum": 0, "maximum": TEN_YEARS, "default": 0},
                "Seconds that pass afterwards.",
            ),
        ),
        "explain": (
            Parameter("workload", "query", "workload", name, "Explain this workload."),
            Parameter("allocation", "query", "allocation", name, "Explain this allocation."),
        ),
    }
    return (budget, *more.get(operation, ()))


def options_of(request: Request, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The fields of `Call` that a request sets.

    Raises
    ------
    RefusedError
        With every parameter that is unknown, given twice or out of range.
    """
    options: dict[str, Any] = {}
    issues = list(_unknown(request, parameters))
    for parameter in parameters:
        values = (request.headers if parameter.where == "header" else request.query_params).getlist(parameter.name)
        if len(values) > 1:
            issues.append(Issue(path=parameter.name, problem="given more than once", remedy=parameter.wanted))
        elif values:
            options[parameter.field] = parameter.read(values[0])
            if options[parameter.field] is None:
                problem = f"{show(values[0])} is not valid here"
                issues.append(Issue(path=parameter.name, problem=problem, remedy=parameter.wanted))
    if {"workload", "allocation"} <= options.keys():
        issues.append(Issue(path="allocation", problem="explain a workload or an allocation", remedy="give one of them"))
    if issues:
        raise RefusedError(Kind.BAD_REQUEST, "; ".join(map(str, issues[:3])), issues)
    return options


def _unknown(request: Request, parameters: Sequence[Parameter]) -> Iterator[Issue]:
    """Names nobody knows: of the query, and of the headers those that start like ours."""
    queries = [parameter.name for parameter in parameters if parameter.where == "query"]
    headers = [parameter.name for parameter in parameters if parameter.where == "header"]
    known = {name.lower() for name in headers}
    for name in request.query_params:
        if name not in queries:
            yield Issue(path=show(name), problem="unknown query parameter", remedy=nearest(name, queries))
    for name in request.headers:
        if name.startswith("allocator-") and name not in known:
            yield Issue(path=name, problem="unknown header", remedy=nearest(name, headers))
