"""What everybody speaks: problems, environments, policies, queries, events, outcomes, settings, errors."""
