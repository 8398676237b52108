"""The body of a request: read within bounds, or thrown away so that the client gets to read why; and whether it still waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from starlette.types import Message, Receive

from allocator.service.problems import Kind, RefusedError

T = TypeVar("T")

SLACK_SECONDS = 5.0
"""A body that is thrown away is waited for no longer than this."""


class Incoming:
    """Wraps the `receive` of a request and knows whether its body has come to its end."""

    def __init__(self, receive: Receive, headers: Mapping[str, str]) -> None:
        self._receive, self._headers = receive, headers
        self.size = 0
        self.ended = "content-length" not in headers and "transfer-encoding" not in headers

    async def receive(self) -> Message:
        """The next message of the request."""
        message = await self._receive()
        if message["type"] == "http.request":
            self.size += len(message.get("body", b""))
            self.ended = not message.get("more_body", False)
        else:
            self.ended = True
        return message

    async def read(self, limit: int, seconds: float) -> bytes:
        """The whole body.

        Raises
        ------
        RefusedError
            If it has more than `limit` bytes, by its own account or in fact, does not arrive in time, or not at all.
        """
        declared = self._headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(seconds):
                while not self.ended:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(Kind.LEFT, "in the middle of the body")
                    parts.append(message.get("body", b""))
                    if self.size > limit:
                        raise _too_large(limit)
        except TimeoutError:
            raise RefusedError(Kind.SLOW_BODY, f"the body must arrive within {seconds:g} seconds") from None
        return b"".join(parts)

    async def answer(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of some work, which is given up once the client has left: nobody would read it.

        Raises
        ------
        RefusedError
            If the client leaves. The work has come to its end then too.
        """
        working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(self._leave())
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise RefusedError(Kind.LEFT, "while it was worked on or waited for a worker")
        finally:
            working.cancel()
            leaving.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)

    async def _leave(self) -> None:
        """Ends when the client has left."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def throw_away(self, limit: int) -> None:
        """Read on without keeping anything, up to `limit` bytes.

        A connection that is closed while the client still sends is reset, and the client never sees the answer. One that
        waits for leave to send (`Expect: 100-continue`) has nothing underway.
        """
        if "expect" in self._headers:
            return
        most = self.size + limit
        try:
            async with asyncio.timeout(SLACK_SECONDS):
                while not self.ended and self.size < most:
                    await self.receive()
        except TimeoutError:
            return  # the client is too slow to be waited for


def _too_large(limit: int) -> RefusedError:
    detail = f"a body may have {limit:,} bytes: compress it with gzip, leave out usage older than the window"
    return RefusedError(Kind.TOO_LARGE, detail)
