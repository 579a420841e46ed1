"""Ops of com.microsoft.nchwc."""
