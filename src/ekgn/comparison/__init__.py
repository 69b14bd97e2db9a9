"""Models side by side: the same graph, budget and ranker, one table."""
