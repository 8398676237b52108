"""The allocator over HTTP: snapshot in, decision out, for every launcher that is no Python program.

The server reads bodies and answers; whatever needs thought (unpacking, decoding, deciding) happens in worker processes that can
be killed. Needs the extra `serve`.
"""

from allocator.service.app import create_app
from allocator.service.settings import Settings

__all__ = ["Settings", "create_app"]
