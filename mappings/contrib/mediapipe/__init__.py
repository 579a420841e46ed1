"""Custom ops of MediaPipe's models."""
