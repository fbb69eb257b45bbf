"""The algorithm. Imports torch and nothing else of ours."""
