"""What `torch.compile` and `torch.export` see of a continuous convolution."""

from contconv.tracing.exported import exportable, exported_flexibly, has_symbols
from contconv.tracing.graph import in_graph, ratio
from contconv.tracing.op import served_by

__all__ = ["exportable", "exported_flexibly", "has_symbols", "in_graph", "ratio", "served_by"]
