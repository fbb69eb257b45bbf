"""What the paper compares Bidirectional Beam Search with, on the same trees."""

from .exact import enumerate_fills
from .one_way import search_backward, search_forward, search_rerank_max, search_rerank_sum
from .samplers import coordinate_descent, gsn, gsn_random, unidirectional_gibbs
from .settings import BaselineSettings

__all__ = [
    "BaselineSettings",
    "coordinate_descent",
    "enumerate_fills",
    "gsn",
    "gsn_random",
    "search_backward",
    "search_forward",
    "search_rerank_max",
    "search_rerank_sum",
    "unidirectional_gibbs",
]
