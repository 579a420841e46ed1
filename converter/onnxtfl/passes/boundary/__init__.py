"""Inputs and outputs: their sizes and names, and parts that are asked for."""
