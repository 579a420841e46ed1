"""Reports as files: an HTML page for people (`page`), JUnit's XML for CI (`junit`)."""
