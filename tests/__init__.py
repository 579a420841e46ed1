"""The test suite; a package so that `tests.harness` is found from the tools as well."""
