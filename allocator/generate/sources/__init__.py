"""Job logs of many forms, read into one: rows with all that a trace needs."""

from allocator.generate.sources.detect import FORMS, read_source
from allocator.generate.sources.parts import lay_over, only_tenants
from allocator.generate.sources.rows import GPUS_PER_NODE, Declared, Source, SourceRow

__all__ = ["FORMS", "GPUS_PER_NODE", "Declared", "Source", "SourceRow", "lay_over", "only_tenants", "read_source"]
