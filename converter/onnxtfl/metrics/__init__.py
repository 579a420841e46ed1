"""How far one array is from another: errors, by slice and by channel, and the noise of rounding; it knows no models."""
