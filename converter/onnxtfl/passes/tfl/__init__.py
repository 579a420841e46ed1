"""TFLite ops to TFLite ops, after lowering."""
