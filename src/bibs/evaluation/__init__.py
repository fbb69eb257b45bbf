"""The paper's experiments: tasks, metrics, runs that survive a kill, tables, plots and a report."""
