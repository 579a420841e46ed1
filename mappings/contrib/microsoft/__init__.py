"""Ops of com.microsoft."""
