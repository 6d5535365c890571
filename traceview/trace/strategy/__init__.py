"""Replicas, roles, clocks, collectives and steps: what the events of several devices are together."""
