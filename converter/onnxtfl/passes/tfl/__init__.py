"""Rewrites of TFLite ops after lowering."""
