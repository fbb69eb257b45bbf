"""What can be searched: models that satisfy `bibs.search.StepModel`."""
