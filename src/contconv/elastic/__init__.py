"""A model at other scales inside: overrides for a while, plans, and budgets."""

from contconv.elastic.budgets import plan
from contconv.elastic.context import scales
from contconv.elastic.plans import Plan, Step

__all__ = ["Plan", "Step", "plan", "scales"]
