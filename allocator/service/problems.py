"""Every way in which the service says no, as a problem document of RFC 9457."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from allocator.domain import Issue
from allocator.service.documents import IssueDoc, ProblemDoc

MEDIA_TYPE = "application/problem+json"

MOST_ISSUES = 1_000
"""Of a document with more problems the first are listed; an answer is not to be larger than the question."""


class Kind(Enum):
    """The kinds of problems: name in the URN, HTTP status, title."""

    BAD_REQUEST = ("bad-request", 400, "The request is not as it should be")
    UNAUTHENTICATED = ("unauthenticated", 401, "A valid token is needed")
    FORBIDDEN = ("forbidden", 403, "The token does not allow this")
    NOT_FOUND = ("not-found", 404, "There is nothing here")
    METHOD = ("method-not-allowed", 405, "The method is not known here")
    SLOW_BODY = ("slow-body", 408, "The body did not arrive in time")
    TOO_LARGE = ("too-large", 413, "The document is too large")
    MEDIA = ("unsupported-media-type", 415, "The body is of a kind that is not read")
    BAD_DOCUMENT = ("bad-document", 422, "The document has problems")
    TOO_MANY = ("too-many-calls", 429, "This token has too many calls underway")
    LEFT = ("client-left", 499, "The client has left before its answer")
    INTERNAL = ("internal-error", 500, "Something is wrong in the service")
    BUSY = ("busy", 503, "The service is full")
    TIME_OVER = ("time-over", 503, "There was no answer within the time budget")

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.value[1]


@dataclass(slots=True, eq=False)
class RefusedError(Exception):
    """A call is refused: the kind, what to know about this case, the issues of the input, and headers of the answer."""

    kind: Kind
    detail: str
    issues: Sequence[Issue] = ()
    headers: Mapping[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.kind.value[0]}: {self.detail}"


def problem_body(refusal: RefusedError, instance: str) -> bytes:
    """The problem document of a refusal.

    Parameters
    ----------
    instance
        Identifies the call; also in the log.
    """
    name, status, title = refusal.kind.value
    doc = ProblemDoc(
        type=f"urn:allocator:problem:{name}",
        title=title,
        status=status,
        detail=refusal.detail,
        instance=f"urn:uuid:{instance}",
        issues=[_issue(issue) for issue in refusal.issues[:MOST_ISSUES]],
    )
    return msgspec.json.encode(doc)


def bad_document(issues: Sequence[Issue]) -> RefusedError:
    """The refusal of a document with its issues."""
    more = f"; the first {MOST_ISSUES:,} are listed" if len(issues) > MOST_ISSUES else ""
    count = f"{len(issues):,} problems" if len(issues) != 1 else "1 problem"
    return RefusedError(Kind.BAD_DOCUMENT, f"{count}; nothing was decided{more}", issues)


def inside(document: str, issues: Sequence[Issue]) -> list[Issue]:
    """The issues of one document of several; their paths start with its name, as on the command line."""
    return [Issue(path=f"{document}: {issue.path}", problem=issue.problem, remedy=issue.remedy) for issue in issues]


def _issue(issue: Issue) -> IssueDoc:
    document, found, path = issue.path.partition(": ")
    if found and path.startswith("$"):
        return IssueDoc(document=document, path=path, problem=issue.problem, remedy=issue.remedy)
    return IssueDoc(path=issue.path, problem=issue.problem, remedy=issue.remedy)
