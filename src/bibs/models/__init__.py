"""What can be searched: models that satisfy `bibs.search.StepModel`."""

from bibs.models.simple import MatrixModel, from_next_token

__all__ = ["MatrixModel", "from_next_token"]
