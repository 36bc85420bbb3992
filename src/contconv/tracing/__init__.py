"""What `torch.compile` and `torch.export` see of a continuous convolution."""

from contconv.tracing.graph import in_graph, ratio
from contconv.tracing.op import served_by

__all__ = ["in_graph", "ratio", "served_by"]
